// A Cubin as bytes, with its key: the entry of the disk cache and of a bundle.
//
//   offset  bytes
//        0      8  "KVILTCB1"
//        8     16  key, high half first
//       24     16  hash of key and payload, high half first
//       40      8  bytes of the payload
//       48         payload: CubinStats (5 x i32, f64), bytes of the log (u64), log, image
//
// Little-endian. A record that is cut short or changed anywhere is not read.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "src/core/hash.h"
#include "src/cuda/cubin.h"

namespace kvilt::cuda {

struct CubinRecord {
  core::Hash128 key;
  Cubin cubin;
};

void AppendRecord(core::Hash128 key, const Cubin& cubin, std::vector<std::byte>& bytes);

// Reads the record at the start of `bytes` and moves them past it; nothing when it is not whole.
std::optional<CubinRecord> ReadRecord(std::span<const std::byte>& bytes);

}  // namespace kvilt::cuda
