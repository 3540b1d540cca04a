// A safetensors file in memory of its own: every tensor aligned and writable, so that caches can be
// run, appended to and changed in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/status.h"
#include "kvilt/tensor.h"
#include "src/core/safetensors.h"

namespace kvilt::core {

inline constexpr std::size_t kTensorAlignment = 256;

// Movable; views stay valid for the life of the object, moves included.
class TensorFile {
 public:
  // Reads the whole file. Errors: as Safetensors::Open; kResourceExhausted when memory is short.
  static Result<TensorFile> Load(const std::string& path);

  // Sorted by name. A scalar appears as shape [1].
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  // An undefined view when there is no such tensor.
  TensorView Find(std::string_view name) const;
  // An I32 or I64 tensor of `rank` as an array of all its elements; undefined when there is none.
  // Errors: kInvalidArgument, naming the tensor.
  Result<IndexArray> FindIndex(std::string_view name, int rank = 1) const;
  const Metadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // An empty file to hold tensors that a command makes.
  TensorFile() = default;

 private:
  struct Release {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::string path_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
  std::unique_ptr<std::byte, Release> memory_;
};

// Reads typed values out of metadata texts. Keys that are absent leave the value as it is. The
// first error is kept: kInvalidArgument, naming "metadata.<key>", the text found and what is
// accepted.
class MetadataReader {
 public:
  explicit MetadataReader(const Metadata& metadata) : metadata_(metadata) {}

  bool Has(const std::string& key) const { return metadata_.contains(key); }
  std::optional<std::string> Text(const std::string& key);
  void Read(const std::string& key, std::int64_t& value);
  void Read(const std::string& key, double& value);
  void Read(const std::string& key, float& value);
  void Read(const std::string& key, bool& value);  // "true" or "false"
  // The index of the text among `accepted`; -1 when the key is absent or its text is not accepted.
  int Choice(const std::string& key, std::span<const std::string_view> accepted);

  void Refuse(const std::string& key, std::string problem);
  const Status& status() const { return status_; }

 private:
  const Metadata& metadata_;
  Status status_;
};

}  // namespace kvilt::core
