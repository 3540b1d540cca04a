#include "src/core/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "src/core/check.h"

namespace kvilt::core {
namespace {

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

TensorView DenseView(std::byte* data, DType dtype, const std::vector<std::int64_t>& shape) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  KVILT_CHECK(view.rank <= kMaxRank);
  if (shape.empty()) view.shape[view.rank++] = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) view.shape[dim] = shape[dim];
  std::int64_t step = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    view.stride[dim] = step;
    step *= view.shape[dim];
  }
  return view;
}

// The whole of `text` as a number.
template <class T>
bool ParseNumber(const std::string& text, T& value) {
  T parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

}  // namespace

Result<TensorFile> TensorFile::Load(const std::string& path) {
  Result<Safetensors> source = Safetensors::Open(path);
  if (!source.ok()) return source.status();
  std::size_t total = 0;
  for (const TensorEntry& entry : source->tensors()) total += Aligned(entry.bytes.size());

  TensorFile file;
  file.path_ = path;
  file.metadata_ = source->metadata();
  auto* memory = static_cast<std::byte*>(
      std::aligned_alloc(kTensorAlignment, std::max(total, kTensorAlignment)));
  if (memory == nullptr) {
    return Status::Exhausted(path, fmt::format("its tensors need {} bytes of memory", total));
  }
  file.memory_.reset(memory);
  file.tensors_.reserve(source->tensors().size());
  for (const TensorEntry& entry : source->tensors()) {
    if (!entry.bytes.empty()) std::memcpy(memory, entry.bytes.data(), entry.bytes.size());
    file.tensors_.emplace_back(entry.name, DenseView(memory, entry.dtype, entry.shape));
    memory += Aligned(entry.bytes.size());
  }
  return file;
}

TensorView TensorFile::Find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const NamedTensor& tensor, std::string_view wanted) { return tensor.first < wanted; });
  return at != tensors_.end() && at->first == name ? at->second : TensorView();
}

Result<IndexArray> TensorFile::FindIndex(std::string_view name, int rank) const {
  const TensorView view = Find(name);
  if (!view.defined()) return IndexArray();
  if (view.dtype != DType::kI32 && view.dtype != DType::kI64) {
    return Status::Invalid(std::string(name) + ".dtype",
                           fmt::format("{}, expected I32 or I64", SafetensorsName(view.dtype)));
  }
  if (view.rank != rank) {
    return Status::Invalid(std::string(name) + ".shape",
                           fmt::format("rank {}, expected {}", view.rank, rank));
  }
  IndexArray array;
  array.data = view.data;
  array.dtype = view.dtype;
  array.size = 1;
  for (int dim = 0; dim < rank; ++dim) array.size *= view.shape[dim];
  return array;
}

std::optional<std::string> MetadataReader::Text(const std::string& key) {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) return std::nullopt;
  return at->second;
}

void MetadataReader::Refuse(const std::string& key, std::string problem) {
  if (status_.ok()) status_ = Status::Invalid("metadata." + key, std::move(problem));
}

void MetadataReader::Read(const std::string& key, std::int64_t& value) {
  const auto text = Text(key);
  if (text && !ParseNumber(*text, value)) {
    Refuse(key, fmt::format("'{}', expected a whole number", *text));
  }
}

void MetadataReader::Read(const std::string& key, double& value) {
  const auto text = Text(key);
  if (text && (!ParseNumber(*text, value) || !std::isfinite(value))) {
    Refuse(key, fmt::format("'{}', expected a finite number", *text));
  }
}

void MetadataReader::Read(const std::string& key, float& value) {
  const auto text = Text(key);
  if (text && (!ParseNumber(*text, value) || !std::isfinite(value))) {
    Refuse(key, fmt::format("'{}', expected a finite number", *text));
  }
}

void MetadataReader::Read(const std::string& key, bool& value) {
  constexpr std::string_view kBool[] = {"false", "true"};
  const int choice = Choice(key, kBool);
  if (choice >= 0) value = choice == 1;
}

int MetadataReader::Choice(const std::string& key, std::span<const std::string_view> accepted) {
  const auto text = Text(key);
  if (!text) return -1;
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i] == *text) return static_cast<int>(i);
  }
  Refuse(key, fmt::format("'{}', accepted: {}", *text, fmt::join(accepted, ", ")));
  return -1;
}

}  // namespace kvilt::core
