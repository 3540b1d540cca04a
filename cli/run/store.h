// K and V written into a cache of a chosen format with AppendKv.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/run/run_args.h"
#include "kvilt/attention.h"
#include "src/core/aligned_memory.h"

namespace kvilt::cli::run {

// A cache with the memory that its segment borrows. Movable.
struct StoredCache {
  Segment segment;
  HealthCounters k_health;
  HealthCounters v_health;

  core::AlignedMemory memory[4];  // K data, K scales, V data, V scales.
  std::vector<float> k_global;
  std::vector<float> v_global;
  std::vector<std::int64_t> indptr;  // Of pages, or of tokens when ragged.
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> kv_len;
};

// Stores dense rows [tokens, kv_heads, head_dim] (f32, bf16, f16); request r owns the tokens
// [indptr[r], indptr[r+1]). Absent dtypes keep the source's.
// Errors: those of AppendKv; kInvalidArgument naming the option; kResourceExhausted.
Result<StoredCache> Store(const Device& device, const StoreArgs& args, const TensorView& k,
                          const TensorView& v, std::span<const std::int64_t> indptr);

// Rows of any cache, requests one after another, decoded to f32: what Store takes.
struct DenseKv {
  core::AlignedMemory k_memory;
  core::AlignedMemory v_memory;
  TensorView k;
  TensorView v;
  std::vector<std::int64_t> indptr;
};
Result<DenseKv> Decode(const Device& device, const Segment& segment);

}  // namespace kvilt::cli::run
