// A KV cache in a safetensors file: one segment, and whatever else the file holds. docs/formats.md
// specifies the schema; query_file.h reads the queries that may lie in the same file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"
#include "src/core/tensor_file.h"

namespace kvilt::core {

// The value of metadata "kvilt.version".
inline constexpr std::string_view kSchemaVersion = "1";

// One segment with the memory that it borrows. Movable; `segment` stays valid in moves.
struct CacheFile {
  TensorFile file;  // All tensors of the file, those that are not part of the cache too.
  Segment segment;
};

// Errors: kRuntime (unreadable), kInvalidArgument naming path, tensor or metadata key, what was
// found and what is accepted. Checks what is declared against what is stored: dtypes, ranks, axes
// of K, V and scales against each other, page size, unknown "kvilt." keys. Page ids and lengths are
// left to planning, so that a broken table can be loaded and looked at.
Result<CacheFile> LoadCacheFile(const std::string& path);
// The cache in a file that is already loaded.
Result<Segment> SegmentOf(const TensorFile& file);

// Writes the segment and `others` (queries, results, ...), with `metadata` beside the segment's own
// keys. Views may have any strides and are stored dense, from the host.
// Errors: kInvalidArgument (device memory, a key that the segment sets itself), kRuntime.
Status SaveCacheFile(const std::string& path, const Segment& segment,
                     std::span<const NamedTensor> others = {}, const Metadata& metadata = {});

// Refuses a file without "kvilt.version" or of another version, and "kvilt." keys that the schema
// does not know: nothing is accepted and ignored.
Status CheckSchema(const Metadata& metadata);

}  // namespace kvilt::core
