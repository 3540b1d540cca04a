// Queries and attention options in a safetensors file, as docs/formats.md specifies.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/core/tensor_file.h"

namespace kvilt::core {

// A request without segments and outputs that borrows from the TensorFile it was read from.
// Movable.
struct QueryFile {
  AttentionRequest request;
  std::vector<std::int64_t> default_indptr;  // What q_indptr borrows when the file has none.
};

// Tensors q, q_scales, q_indptr (default: one request), q_positions, key_positions, sink,
// alibi_slopes, mask_bits, mask_indptr, and the options in the metadata; what the file does not say
// keeps its default. Shapes are left to planning.
// Errors: kInvalidArgument, naming tensor or metadata key: a file without `q`, a "kvilt." key that
// the schema does not know, such keys without kvilt.version or beside another version of it.
Result<QueryFile> QueryOf(const TensorFile& file);

}  // namespace kvilt::core
