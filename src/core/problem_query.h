// The operands of a Problem other than its caches: q, masks, positions, vectors, and the guarded
// outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/core/aligned_memory.h"
#include "src/core/problem.h"

namespace kvilt::core {

// Hash of what the content of request r depends on besides positions.
std::uint64_t ContentId(const Problem& problem, std::int64_t request);

// First entries per request of a concatenation: [0, n0, n0 + n1, ...].
std::vector<std::int64_t> PrefixSums(const std::vector<std::int64_t>& lengths);

// An [rows, heads, row] operand with padding behind heads and rows and a guard zone around all.
class PaddedRows {
 public:
  PaddedRows() = default;
  // `row`: storage elements of one head's row. `addresses_only`: see BuildProblemShape.
  PaddedRows(DType dtype, std::int64_t rows, std::int64_t heads, std::int64_t row,
             std::int64_t head_pad, std::int64_t row_pad, bool addresses_only = false);

  bool allocated() const { return memory_.data() != nullptr; }
  TensorView view(int rank = 3) const;  // rank 2: [rows, heads], for lse.
  std::byte* row(std::int64_t r, std::int64_t head) const;
  void Fill(std::uint8_t byte) { memory_.Fill(byte); }
  std::span<std::byte> memory() { return {memory_.data(), memory_.size_bytes()}; }  // All of it.
  // The byte offset (from the first element) of the first byte outside of the first `rows` rows
  // that is not `byte`; nothing when all are.
  std::optional<std::int64_t> FirstTouched(std::int64_t rows, std::uint8_t byte) const;

 private:
  static constexpr std::int64_t kGuardBytes = 256;
  DType dtype_ = DType::kF32;
  std::int64_t rows_ = 0, heads_ = 0, row_ = 0, head_stride_ = 0, row_stride_ = 0;
  AlignedMemory memory_;
};

// Mask bits of all requests, packed as the API wants them.
struct MaskMemory {
  std::vector<std::uint8_t> bits;
  IndexMemory indptr;  // First byte of each request, always filled in.

  bool Allows(std::int64_t request, std::int64_t index) const {
    const auto byte =
        static_cast<std::size_t>(indptr.values()[static_cast<std::size_t>(request)] + index / 8);
    return (bits[byte] >> (index % 8)) & 1;
  }
};
MaskMemory MakeMask(const Problem& problem);

// Positions of the rows of all requests in order, or of the keys.
std::vector<std::int64_t> MakeQueryPositions(const Problem& problem);
std::vector<std::int64_t> MakeKeyPositions(const Problem& problem);

std::vector<float> MakeSlopes(const Problem& problem);
std::vector<float> MakeSinks(const Problem& problem);

// Which keys of a request no row sees: 1 = unseen. Empty when poison is off or all are seen. With
// PoisonForm::kPages only what positions alone hide (causal, window) counts.
std::vector<std::uint8_t> UnseenKeys(const Problem& problem, std::int64_t request,
                                     const std::vector<std::int64_t>& q_positions,
                                     const MaskMemory& mask);

// Fills q (and the scales of an NVFP4 q) so that scores have the deviation problem.sigma, given the
// root mean square of K's dequantized elements per KV head. Returns the request's q_scale.
float FillQueries(const Problem& problem, const std::vector<double>& k_rms, PaddedRows& q,
                  PaddedRows& q_scales);

}  // namespace kvilt::core
