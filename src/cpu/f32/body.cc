#include "src/cpu/f32/body.h"

// Every target that the machine might have, the scalar one included: all of them are selectable.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/f32/body.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "src/cpu/f32/decode-inl.h"
#include "src/cpu/f32/rope-inl.h"
#include "src/cpu/f32/scores-inl.h"
#include "src/cpu/f32/softmax-inl.h"
#include "src/cpu/f32/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {

// Rows in registers: 16 accumulators where there are 32 registers, else 8.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kBlockRows = 4;
constexpr int kBlockColumns = 4;
#else
constexpr int kBlockRows = 2;
constexpr int kBlockColumns = 4;
#endif

int Padded(int head_dim) { return contract::RoundUp(head_dim, 16); }

i64 QueryRowBytes(const BodyConfig& config) { return Padded(config.head_dim_qk) * i64{4}; }
i64 KeyTileBytes(const BodyConfig& config) { return kTileKeys * QueryRowBytes(config); }
i64 OutputRowFloats(const BodyConfig& config) { return Padded(config.head_dim_vo); }
i64 ValueTileBytes(const BodyConfig& config) { return kTileKeys * OutputRowFloats(config) * 4; }

void PrepareQuery(const BodyConfig& config, const float* row, void* query) {
  __builtin_memcpy(query, row, static_cast<std::size_t>(QueryRowBytes(config)));
}

void DecodeKeys(const BodyConfig& config, const RowSource& source, const Rotation* rotation,
                void* key_tile) {
  float* rows = static_cast<float*>(key_tile);
  const int stride = Padded(config.head_dim_qk);
  DecodeRows(source, kTileKeys, rows, stride);
  if (rotation != nullptr) RotateRows(rows, stride, kTileKeys, *rotation);
}

void DecodeValues(const BodyConfig& config, const RowSource& source, void* value_tile) {
  DecodeRows(source, kTileKeys, static_cast<float*>(value_tile), Padded(config.head_dim_vo));
}

bool ValuesAreFinite(const BodyConfig& config, const void* value_tile) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const float* values = static_cast<const float*>(value_tile);
  VF sum = hn::Zero(df);  // 0 * x is 0 for finite x and NaN otherwise.
  for (int i = 0; i < kTileKeys * Padded(config.head_dim_vo); i += lanes) {
    sum = hn::MulAdd(hn::Load(df, values + i), hn::Zero(df), sum);
  }
  return hn::GetLane(hn::SumOfLanes(df, sum)) == 0.0f;
}

template <int kRows>
void AttendRows(const TileJob& job, const RowRef* rows) {
  alignas(64) float scores[kRows * kTileKeys];
  float factors[kRows];
  const float* queries[kRows];
  float* outputs[kRows];
  u64 any = 0;
  for (int r = 0; r < kRows; ++r) {
    queries[r] = static_cast<const float*>(rows[r].query);
    outputs[r] = rows[r].output;
    any |= rows[r].visible;
  }
  const int key_begin = __builtin_ctzll(any) & ~3;
  const int key_end = kTileKeys - (__builtin_clzll(any) & ~3);
  ScoreRows<kRows>(queries, static_cast<const float*>(job.key_tile),
                   Padded(job.config->head_dim_qk), key_begin, key_end, scores);
  for (int r = 0; r < kRows; ++r) {
    float* row_scores = scores + r * kTileKeys;
    if (!job.logits.plain) ApplyLogitOptions(job.logits, rows[r], row_scores);
    const float scale = job.logits.plain ? job.logits.scale_log2 : contract::kLog2E;
    factors[r] = SoftmaxRow(scale, rows[r].visible, row_scores, rows[r].state);
  }
  AddAllValues<kRows, kBlockColumns>(scores, factors, outputs,
                                     static_cast<const float*>(job.value_tile),
                                     Padded(job.config->head_dim_vo), key_begin, key_end);
}

void Attend(const TileJob& job) {
  int r = 0;
  for (; r + kBlockRows <= job.row_count; r += kBlockRows)
    AttendRows<kBlockRows>(job, job.rows + r);
  for (; r < job.row_count; ++r) AttendRows<1>(job, job.rows + r);
}

void FinishOutput(const BodyConfig& config, const float* output, float* natural) {
  __builtin_memcpy(natural, output, static_cast<std::size_t>(config.head_dim_vo) * 4);
}

const AttentionBody& TargetBody() {
  static constexpr AttentionBody kBody = {
      QueryRowBytes,   KeyTileBytes,      ValueTileBytes, OutputRowFloats, DecodeRows,
      RotateRows,      MultiplyAngles,    PrepareQuery,   DecodeKeys,      DecodeValues,
      ValuesAreFinite, ApplyLogitOptions, Attend,         FinishOutput};
  return kBody;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kvilt::cpu::f32 {
namespace {

// What the machine has, whatever DisableTargets of a host that uses Highway too says: the first
// answer stays.
bool MachineHas(contract::i64 target) {
  static const contract::i64 supported = hwy::SupportedTargets();
  return (supported & target) != 0;
}

}  // namespace

const AttentionBody* Body(SimdTarget target) {
  switch (target) {
    case SimdTarget::kScalar:
#if HWY_TARGETS & HWY_EMU128
      return &N_EMU128::TargetBody();
#elif HWY_TARGETS & HWY_SCALAR
      return &N_SCALAR::TargetBody();
#else
      return nullptr;
#endif
    case SimdTarget::kSse4:
#if HWY_TARGETS & HWY_SSE4
      return MachineHas(HWY_SSE4) ? &N_SSE4::TargetBody() : nullptr;
#else
      return nullptr;
#endif
    case SimdTarget::kNeon:
#if HWY_TARGETS & HWY_NEON
      return MachineHas(HWY_NEON) ? &N_NEON::TargetBody() : nullptr;
#else
      return nullptr;
#endif
    case SimdTarget::kAvx2:
#if HWY_TARGETS & HWY_AVX2
      return MachineHas(HWY_AVX2) ? &N_AVX2::TargetBody() : nullptr;
#else
      return nullptr;
#endif
    case SimdTarget::kAvx512:
    case SimdTarget::kAvx512Bf16:
#if HWY_TARGETS & HWY_AVX3
      return MachineHas(HWY_AVX3) ? &N_AVX3::TargetBody() : nullptr;
#else
      return nullptr;
#endif
  }
  return nullptr;
}

}  // namespace kvilt::cpu::f32

#endif  // HWY_ONCE
