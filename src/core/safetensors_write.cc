#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "src/core/check.h"
#include "src/core/safetensors.h"
#include "src/core/safetensors_header.h"

namespace kvilt::core {
namespace {

Status CheckWritable(const NamedTensor& tensor) {
  const auto& [name, view] = tensor;
  if (name.empty() || name == kMetadataName) {
    return Status::Invalid("tensors", fmt::format("the name '{}', expected a tensor's name", name));
  }
  if (!view.defined() || view.rank > kMaxRank) {
    return Status::Invalid(name + ".rank", fmt::format("{}, expected 1..{}", view.rank, kMaxRank));
  }
  if (view.device.kind != DeviceKind::kCpu) {
    return Status::Invalid(name + ".device", "not on the host");
  }
  std::int64_t bytes = StorageBytes(view.dtype);
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] < 0 || __builtin_mul_overflow(bytes, view.shape[dim], &bytes)) {
      return Status::Invalid(
          fmt::format("{}.shape[{}]", name, dim),
          fmt::format("{}, expected >= 0 and at most 2^63 bytes in all", view.shape[dim]));
    }
  }
  if (bytes > 0 && view.data == nullptr) return Status::Invalid(name + ".data", "null");
  return Status::Ok();
}

bool IsDense(const TensorView& view) {
  std::int64_t step = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    if (view.shape[dim] != 1 && view.stride[dim] != step) return false;
    step *= view.shape[dim];
  }
  return true;
}

std::int64_t ViewBytes(const TensorView& view) {
  std::int64_t bytes = StorageBytes(view.dtype);
  for (int dim = 0; dim < view.rank; ++dim) bytes *= view.shape[dim];
  return bytes;
}

std::vector<std::byte> CopyDense(const TensorView& view) {
  const std::int64_t total = ViewBytes(view);
  std::vector<std::byte> dense(static_cast<std::size_t>(total));
  const std::int64_t element = StorageBytes(view.dtype);
  const std::byte* base = static_cast<const std::byte*>(view.data);
  std::array<std::int64_t, kMaxRank> index = {};
  for (std::int64_t at = 0; at < total; at += element) {
    std::int64_t offset = 0;
    for (int dim = 0; dim < view.rank; ++dim)
      offset += index[static_cast<std::size_t>(dim)] * view.stride[dim];
    std::memcpy(dense.data() + at, base + offset * element, static_cast<std::size_t>(element));
    for (int dim = view.rank - 1; dim >= 0; --dim) {
      if (++index[static_cast<std::size_t>(dim)] < view.shape[dim]) break;
      index[static_cast<std::size_t>(dim)] = 0;
    }
  }
  return dense;
}

// The header text, or empty when a name or a metadata text is not UTF-8.
std::string HeaderText(const std::vector<const NamedTensor*>& order, const Metadata& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header[std::string(kMetadataName)] = metadata;
  std::int64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const auto& [name, view] = *tensor;
    const std::int64_t end = offset + ViewBytes(view);
    header[name] = {{"dtype", SafetensorsName(view.dtype)},
                    {"shape", std::vector<std::int64_t>(view.shape, view.shape + view.rank)},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  if (header.is_null()) header = nlohmann::ordered_json::object();
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {  // Invalid UTF-8.
    return {};
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                        const Metadata& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) {
    KVILT_RETURN_IF_ERROR(CheckWritable(tensor));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const int a_bytes = StorageBytes(a->second.dtype);
    const int b_bytes = StorageBytes(b->second.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->first < b->first;
  });
  std::unordered_set<std::string_view> names;
  for (const NamedTensor* tensor : order) {
    if (!names.insert(tensor->first).second) return Status::Invalid(tensor->first, "given twice");
  }
  const std::string header = HeaderText(order, metadata);
  if (header.empty()) return Status::Invalid("metadata", "a name or text that is not UTF-8");

  std::array<std::byte, kHeaderLengthBytes> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  }
  std::vector<std::vector<std::byte>> copies;
  copies.reserve(order.size());
  std::vector<std::span<const std::byte>> parts = {length, std::as_bytes(std::span(header))};
  for (const NamedTensor* tensor : order) {
    const TensorView& view = tensor->second;
    if (IsDense(view)) {
      parts.emplace_back(static_cast<const std::byte*>(view.data),
                         static_cast<std::size_t>(ViewBytes(view)));
    } else {
      parts.emplace_back(copies.emplace_back(CopyDense(view)));
    }
  }
  return WriteFile(path, parts);
}

}  // namespace kvilt::core
