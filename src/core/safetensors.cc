#include "src/core/safetensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/core/safetensors_header.h"

namespace kvilt::core {
namespace {

// Every byte behind the header belongs to exactly one tensor.
Status CheckCoverage(const SafetensorsHeader& header, std::int64_t data_bytes) {
  std::vector<std::size_t> order(header.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return header.offsets[a] < header.offsets[b]; });
  std::int64_t covered = 0;
  std::string before = "the header";
  for (const std::size_t i : order) {
    const auto [begin, end] = header.offsets[i];
    const std::string name = QuoteFileText(header.tensors[i].name);
    if (begin != covered) {
      return Status::Invalid(
          name + ".data_offsets",
          fmt::format("begins at {}, expected {} where {} ends: tensors {}", begin, covered, before,
                      begin < covered ? "overlap" : "leave a hole"));
    }
    covered = end;
    before = name;
  }
  if (covered != data_bytes) {
    return Status::Invalid("file",
                           fmt::format("{} bytes of data behind the header, but the tensors "
                                       "end at {}",
                                       data_bytes, covered));
  }
  return Status::Ok();
}

std::uint64_t ReadLength(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return length;
}

}  // namespace

Result<Safetensors> Safetensors::Open(const std::string& path) {
  Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  Result<Safetensors> parsed = Parse(file->bytes());
  if (!parsed.ok()) {
    return Status(parsed.status().code(), path, parsed.status().message());
  }
  parsed->file_ = std::move(file).value();
  return parsed;
}

Result<Safetensors> Safetensors::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderLengthBytes) {
    return Status::Invalid(
        "header",
        fmt::format("a file of {} bytes, expected 8 bytes of header length first", bytes.size()));
  }
  const std::uint64_t length = ReadLength(bytes);
  const std::uint64_t behind = bytes.size() - kHeaderLengthBytes;
  if (length > behind || length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    return Status::Invalid("header.length",
                           fmt::format("{}, expected at most {}", length,
                                       std::min<std::uint64_t>(behind, kMaxHeaderBytes)));
  }
  const auto data = bytes.subspan(kHeaderLengthBytes + length);
  const auto data_bytes = static_cast<std::int64_t>(data.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kHeaderLengthBytes,
                              length);
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(text, data_bytes);
  if (!header.ok()) return header.status();
  KVILT_RETURN_IF_ERROR(CheckCoverage(*header, data_bytes));

  Safetensors result;
  result.tensors_ = std::move(header->tensors);
  result.metadata_ = std::move(header->metadata);
  for (std::size_t i = 0; i < result.tensors_.size(); ++i) {
    const auto [begin, end] = header->offsets[i];
    result.tensors_[i].bytes =
        data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }
  std::sort(result.tensors_.begin(), result.tensors_.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  return result;
}

const TensorEntry* Safetensors::Find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace kvilt::core
