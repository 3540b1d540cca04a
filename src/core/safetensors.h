// The safetensors format: 8 bytes of little-endian header length, a JSON header, the tensors'
// bytes.
//
// Source: https://github.com/huggingface/safetensors (format section of its README). As the
// reference reader does, a file is refused whose tensors overlap, leave holes or do not end where
// the file ends. docs/formats.md says which tensors and metadata make a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvilt/dtype.h"
#include "kvilt/status.h"
#include "kvilt/tensor.h"
#include "src/core/file.h"

namespace kvilt::core {

// The longest header that is read. 100,000 tensors need about 10 MB.
inline constexpr std::int64_t kMaxHeaderBytes = std::int64_t{1} << 24;

using Metadata = std::map<std::string, std::string>;

// "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2", "U8", "I32", "I64". kNVFP4 is stored as "U8": its
// dtype is declared in the metadata.
std::string_view SafetensorsName(DType dtype);

// A tensor of a file. `bytes` borrows from the file and may have any alignment.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;  // Empty: a scalar, one element. At most kMaxRank extents.
  std::span<const std::byte> bytes;
  std::int64_t header_order = 0;  // Position in the header, for messages and listings.

  std::int64_t elements() const {
    return static_cast<std::int64_t>(bytes.size()) / StorageBytes(dtype);
  }
};

// A parsed file. Movable. The tensors are sorted by name.
class Safetensors {
 public:
  // Errors: kRuntime when the file cannot be read; otherwise those of Parse, behind the path.
  static Result<Safetensors> Open(const std::string& path);
  // `bytes` must outlive the result. Errors: kInvalidArgument, naming the tensor and its field
  // ("k.data.data_offsets"), or "header". Allocates at most a small multiple of the header.
  static Result<Safetensors> Parse(std::span<const std::byte> bytes);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* Find(std::string_view name) const;  // Null when absent.
  const Metadata& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::vector<TensorEntry> tensors_;
  Metadata metadata_;
};

// A tensor to write: any strides, on the host; it is stored dense in row-major order.
using NamedTensor = std::pair<std::string, TensorView>;

// Writes the file whole or not at all. Tensors are stored widest dtype first, then by name, so that
// each is aligned to its element; equal arguments give equal bytes.
// Errors: kInvalidArgument (empty or repeated name, "__metadata__", negative extents, device
// memory, text that is not UTF-8), kRuntime.
Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                        const Metadata& metadata);

}  // namespace kvilt::core
