// The JSON header of a safetensors file. Private to safetensors.cc and safetensors_write.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/safetensors.h"

namespace kvilt::core {

inline constexpr std::string_view kMetadataName = "__metadata__";
inline constexpr std::int64_t kHeaderLengthBytes = 8;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // In the order of the header, without bytes.
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;  // [begin, end) of tensors[i].
  Metadata metadata;
};

// Each tensor has the three fields once, a shape that fits 64 bits, and offsets within `data_bytes`
// that hold just that shape; how tensors lie to each other is not looked at.
// Errors: kInvalidArgument, naming the tensor and its field.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, std::int64_t data_bytes);

// Text from a file, short and printable enough for a message.
std::string QuoteFileText(std::string_view text);

}  // namespace kvilt::core
