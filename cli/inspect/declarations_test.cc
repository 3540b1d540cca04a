#include "cli/inspect/declarations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace kvilt::cli {
namespace {

// An NVFP4 side of head dim 64 (4 scales a row) without values.
CacheSide Side() {
  static std::array<std::uint8_t, 4 * 2 * 32> codes;
  static std::array<std::uint8_t, 4 * 2 * 4> scales;
  CacheSide side;
  side.data = TensorView::Dense(codes.data(), DType::kNVFP4, {1, 4, 2, 32});
  side.scales = TensorView::Dense(scales.data(), DType::kE4M3, {1, 4, 2, 4});
  return side;
}

template <class Change>
std::string Problems(Change change, std::string_view name = "v") {
  CacheSide side = Side();
  change(side);
  std::vector<std::string> problems;
  AddDeclarationProblems(name, side, problems);
  return fmt::format("{}", fmt::join(problems, "\n"));
}

TEST(DeclarationProblems, GlobalsThatAreNoMultiplierOrLookLikeAReciprocal) {
  const auto global = [](float value) {
    return Problems([&](CacheSide& side) { side.global.value = value; });
  };
  const std::string multiplier = ", expected a finite multiplier in [2^-100, 2^100]";
  const std::string reciprocal =
      ", expected [2^-20, 64]: is it a reciprocal? value = stored * global (allow_unusual_scale "
      "says that it is meant)";
  EXPECT_EQ(global(0.01f), "");
  EXPECT_EQ(global(0), "v: global is 0" + multiplier);
  EXPECT_EQ(global(-1), "v: global is -1" + multiplier);
  EXPECT_EQ(global(std::nanf("")), "v: global is nan" + multiplier);
  EXPECT_EQ(global(1000), "v: global is 1000" + reciprocal);
  EXPECT_EQ(Problems([](CacheSide& side) {
              side.global.value = 1e9f;
              side.global.allow_unusual = true;
            }),
            "");
  float by_head[] = {1, std::nanf("")};
  const auto heads = [&](CacheSide& side) {
    side.global.array = by_head;
    side.global.array_size = 2;
  };
  EXPECT_EQ(Problems(heads), "v: global[1] is nan" + multiplier);
  by_head[0] = 1000;
  EXPECT_EQ(Problems(heads), "v: global[0] is 1000" + reciprocal + "; 2 of 2 are wrong");
}

TEST(DeclarationProblems, ScaleLayoutsThatDoNotFitTheSide) {
  const auto layout = [](ScaleLayout scale_layout, int blocks, std::string_view name = "v") {
    return Problems(
        [&](CacheSide& side) {
          side.scale_layout = scale_layout;
          side.scale_row_blocks = blocks;
        },
        name);
  };
  const std::string sliced = ", expected 4 (head_dim / 16): interleaved scales cannot be sliced";
  EXPECT_EQ(layout(ScaleLayout::kInterleaved4, 4), "");
  EXPECT_EQ(layout(ScaleLayout::kInterleaved4, 0), "v: scale_row_blocks is missing" + sliced);
  EXPECT_EQ(layout(ScaleLayout::kInterleaved4, 8), "v: scale_row_blocks is 8" + sliced);
  EXPECT_EQ(layout(ScaleLayout::kLinear, 0), "");
  EXPECT_EQ(layout(ScaleLayout::kLinear, 4),
            "v: scale_row_blocks is 4, expected none: linear scales do not use it");
  EXPECT_EQ(layout(ScaleLayout::kInterleaved4, 4, "k"),
            "k: scales are declared interleaved4, expected linear: only V may be");
}

TEST(OwnerProblems, AbsentRequestsAndOrderAreNamed) {
  const auto problems = [](const std::vector<std::int32_t>& owners, std::int64_t batch,
                           std::int64_t rows) {
    std::vector<std::string> found;
    AddOwnerProblems(owners, batch, rows, found);
    return fmt::format("{}", fmt::join(found, "\n"));
  };
  EXPECT_EQ(problems({}, 2, 2), "");
  EXPECT_EQ(problems({0, 1}, 2, 1), "");
  EXPECT_EQ(problems({0, 7}, -1, 1), "");  // No queries in the file: nothing is known.
  EXPECT_EQ(problems({0, 7}, 2, 1),
            "owners: request 7, but the queries in the file are of 2 requests");
  EXPECT_EQ(problems({1, 0}, 2, 1), "owners: 0 after 1, expected them to increase");
  EXPECT_EQ(problems({0}, 2, 3), "table: 3 rows, expected 1: a segment with owners is one row");
}

}  // namespace
}  // namespace kvilt::cli
