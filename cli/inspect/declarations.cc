#include "cli/inspect/declarations.h"

#include <fmt/format.h>

#include "cli/inspect/side_view.h"

namespace kvilt::cli {
namespace {

// docs/semantics.md, section 1.
constexpr float kLeastGlobal = 0x1p-100f;
constexpr float kMostGlobal = 0x1p100f;
constexpr float kLeastUsual = 0x1p-20f;
constexpr float kMostUsual = 64.0f;

std::string GlobalProblem(float value, bool allow_unusual) {
  if (!(value >= kLeastGlobal && value <= kMostGlobal)) {
    return fmt::format("is {}, expected a finite multiplier in [2^-100, 2^100]", value);
  }
  if (!allow_unusual && (value < kLeastUsual || value > kMostUsual)) {
    return fmt::format(
        "is {}, expected [2^-20, 64]: is it a reciprocal? value = stored * global "
        "(allow_unusual_scale says that it is meant)",
        value);
  }
  return {};
}

void AddGlobalProblems(std::string_view name, const DecodeScale& global,
                       std::vector<std::string>& problems) {
  if (global.array == nullptr) {
    const std::string problem = GlobalProblem(global.value, global.allow_unusual);
    if (!problem.empty()) problems.push_back(fmt::format("{}: global {}", name, problem));
    return;
  }
  std::int64_t count = 0;
  std::string first;
  for (std::int64_t head = 0; head < global.array_size; ++head) {
    const std::string problem = GlobalProblem(global.array[head], global.allow_unusual);
    if (problem.empty()) continue;
    if (++count == 1) first = fmt::format("{}: global[{}] {}", name, head, problem);
  }
  if (count > 1) first += fmt::format("; {} of {} are wrong", count, global.array_size);
  if (count > 0) problems.push_back(std::move(first));
}

}  // namespace

void AddDeclarationProblems(std::string_view name, const CacheSide& side,
                            std::vector<std::string>& problems) {
  AddGlobalProblems(name, side.global, problems);
  if (side.data.dtype != DType::kNVFP4) return;
  const auto add = [&](const std::string& text) {
    problems.push_back(fmt::format("{}: {}", name, text));
  };
  if (side.scale_layout == ScaleLayout::kLinear) {
    if (side.scale_row_blocks != 0) {
      add(fmt::format("scale_row_blocks is {}, expected none: linear scales do not use it",
                      side.scale_row_blocks));
    }
    return;
  }
  if (name == "k") add("scales are declared interleaved4, expected linear: only V may be");
  if (!SideReadable(side)) {
    add("interleaved4 scales need a page size and head_dim / 16 that are multiples of 4");
  }
  const std::int64_t blocks = SideView(side).row_blocks();
  if (side.scale_row_blocks != blocks) {
    add(fmt::format(
        "scale_row_blocks is {}, expected {} (head_dim / 16): interleaved scales "
        "cannot be sliced",
        side.scale_row_blocks == 0 ? "missing" : std::to_string(side.scale_row_blocks), blocks));
  }
}

void AddOwnerProblems(const std::vector<std::int32_t>& owners, std::int64_t batch,
                      std::int64_t rows, std::vector<std::string>& problems) {
  if (owners.empty()) return;
  if (rows != 1) {
    problems.push_back(
        fmt::format("table: {} rows, expected 1: a segment with owners is one row", rows));
  }
  std::int64_t previous = -1;
  for (const std::int32_t owner : owners) {
    if (owner <= previous) {
      problems.push_back(
          fmt::format("owners: {} after {}, expected them to increase", owner, previous));
    }
    if (batch >= 0 && owner >= batch) {
      problems.push_back(fmt::format("owners: request {}, but the queries in the file are of {} {}",
                                     owner, batch, batch == 1 ? "request" : "requests"));
    }
    previous = owner;
  }
}

}  // namespace kvilt::cli
