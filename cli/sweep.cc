#include "cli/sweep.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "src/core/random.h"

namespace kvilt::cli {
namespace {

using core::CacheKind;
using core::Problem;
using core::Random;
using core::SegmentSpec;

template <class T>
T Pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.Below(static_cast<std::int64_t>(values.size()))];
}

DType PickCacheDType(Random& random) {
  return Pick(random, {DType::kNVFP4, DType::kNVFP4, DType::kNVFP4, DType::kBF16, DType::kF16,
                       DType::kE4M3, DType::kE5M2, DType::kF32});
}

// ------------------------------------------------------------------------------------- sizes

void DrawHeads(Random& random, Problem& p) {
  p.kv_heads = Pick(random, {1, 1, 2, 2, 3, 4, 8});
  int group = Pick(random, {1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 16});
  if (random.OneIn(40)) group = 64;
  p.q_heads = std::max(1, std::min(group, 64 / p.kv_heads)) * p.kv_heads;
  const auto head_dim = [&] {
    if (random.OneIn(6)) return 8 * static_cast<int>(1 + random.Below(20));  // Legal or made so.
    return Pick(random, {16, 32, 64, 64, 64, 80, 96, 128, 128, 192, 256, 512});
  };
  p.head_dim_qk = head_dim();
  p.head_dim_vo = random.OneIn(3) ? head_dim() : p.head_dim_qk;
}

std::int64_t DrawLength(Random& random) {
  if (random.OneIn(5)) {
    return Pick<std::int64_t>(random, {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129});
  }
  return random.OneIn(6) ? 200 + random.Below(500) : 1 + random.Below(260);
}

void DrawLengths(Random& random, Problem& p) {
  p.phase = Pick(random, {core::Phase::kDecode, core::Phase::kDecode, core::Phase::kVerify,
                          core::Phase::kPrefill});
  const std::int64_t batch = Pick<std::int64_t>(random, {1, 1, 2, 3, 4, 7});
  p.kv_len.clear();
  p.q_len.clear();
  for (std::int64_t r = 0; r < batch; ++r) {
    p.kv_len.push_back(DrawLength(random));
    std::int64_t rows = 1;
    if (p.phase == core::Phase::kVerify) rows = 2 + random.Below(7);
    if (p.phase == core::Phase::kPrefill) rows = 1 + random.Below(40);
    if (random.OneIn(12)) rows = random.Below(6);  // Mixed batches, and requests without rows.
    p.q_len.push_back(rows);
  }
  if (random.OneIn(5)) {
    for (std::int64_t r = 0; r < batch; ++r) p.ids.push_back(random.Below(batch));
  }
}

// ------------------------------------------------------------------------------------- caches

void DrawSide(Random& random, Problem& p, core::SideSpec& side) {
  side.layout = random.OneIn(2) ? KvLayout::kNHD : KvLayout::kHND;
  if (random.OneIn(3)) {
    const auto draw = [&] {
      return Pick(random, {1.0f, 0.5f, 0.01f, 3.0f, 0.0009765625f, 0.37f, 11.0f});
    };
    side.global = {draw()};
    if (random.OneIn(2)) {
      while (static_cast<int>(side.global.size()) < p.kv_heads) side.global.push_back(draw());
    }
  }
  if (random.OneIn(4)) side.row_pad = Pick<std::int64_t>(random, {1, 4, 16, 48});
  if (random.OneIn(5)) side.page_pad = 1 + random.Below(3);
  if (random.OneIn(6)) side.shift = 1 + random.Below(5);
}

void DrawSegments(Random& random, Problem& p) {
  if (random.OneIn(4)) {
    const std::int64_t count = 2 + random.Below(3);
    const std::int64_t rest = random.Below(count);
    for (std::int64_t s = 0; s < count; ++s) {
      SegmentSpec segment;
      if (s != rest) segment.length = random.OneIn(6) ? 0 : 1 + random.Below(80);
      if (random.OneIn(2)) segment.k_dtype = segment.v_dtype = PickCacheDType(random);
      if (random.OneIn(4)) segment.v_dtype = PickCacheDType(random);
      if (segment.v_dtype && !segment.k_dtype) segment.k_dtype = PickCacheDType(random);
      if (random.OneIn(4)) segment.cache = Pick(random, {CacheKind::kPaged, CacheKind::kRagged});
      if (random.OneIn(4)) segment.page_size = Pick<std::int64_t>(random, {1, 4, 8, 16, 64});
      p.segments.push_back(segment);
    }
  }
  if (p.batch() < 2 || !random.OneIn(3)) return;
  // A shared segment goes first, and its owners' keys count it.
  SegmentSpec shared;
  for (std::int32_t r = 0; r < p.batch(); ++r) {
    if (!random.OneIn(4)) shared.owners.push_back(r);
  }
  if (shared.owners.empty()) return;
  shared.length = random.OneIn(8) ? 0 : 1 + random.Below(150);
  if (random.OneIn(3)) shared.k_dtype = shared.v_dtype = PickCacheDType(random);
  for (std::int32_t r : shared.owners) p.kv_len[static_cast<std::size_t>(r)] += shared.length;
  if (p.segments.empty()) p.segments.emplace_back();
  p.segments.insert(p.segments.begin(), shared);
}

void DrawCaches(Random& random, Problem& p) {
  p.k.dtype = PickCacheDType(random);
  p.v.dtype = random.OneIn(2) ? p.k.dtype : PickCacheDType(random);
  DrawSide(random, p, p.k);
  DrawSide(random, p, p.v);
  if (random.OneIn(2)) p.scale_layout = ScaleLayout::kInterleaved4;
  p.global_by_pointer = random.OneIn(4);
  p.allow_unusual_scale = random.OneIn(6);
  if (p.allow_unusual_scale && random.OneIn(2)) p.k.global = {random.OneIn(2) ? 0x1p-30f : 500.0f};
  if (p.allow_unusual_scale && random.OneIn(2)) p.v.global = {random.OneIn(2) ? 0x1p-25f : 100.0f};
  p.cache = random.OneIn(4) ? CacheKind::kRagged : CacheKind::kPaged;
  p.page_size = Pick<std::int64_t>(random, {16, 16, 16, 1, 3, 4, 5, 8, 32, 64, 100, 128});
  p.table = random.OneIn(3) ? core::TableForm::kPadded : core::TableForm::kCsr;
  if (random.OneIn(4)) p.lengths = core::LengthForm::kLastPageLen;
  p.index = random.OneIn(3) ? DType::kI64 : DType::kI32;
  p.permute_pages = !random.OneIn(5);
  p.pool = Pick(random, {core::PoolForm::kSeparate, core::PoolForm::kSeparate, core::PoolForm::kKv,
                         core::PoolForm::kRows});
  DrawSegments(random, p);
  if (random.OneIn(8)) p.prefix = 1 + random.Below(60);
}

// ------------------------------------------------------------------------------------ options

core::PositionSpec DrawPositions(Random& random) {
  using Kind = core::PositionSpec::Kind;
  if (random.OneIn(2)) return {Kind::kOffset, Pick<std::int64_t>(random, {-7, 5, 300, 100000})};
  return {Kind::kRandom, Pick<std::int64_t>(random, {0, 100, 300, 20000})};
}

void DrawQuery(Random& random, Problem& p) {
  p.q_dtype = Pick(random, {DType::kBF16, DType::kBF16, DType::kBF16, DType::kF16, DType::kF32,
                            DType::kE4M3, DType::kNVFP4});
  if (random.OneIn(6)) p.q_scale = Pick(random, {0.125f, 1.0f, 2.5f});
  if (random.OneIn(5)) p.q_head_pad = Pick<std::int64_t>(random, {1, 8, 16});
  if (random.OneIn(5)) p.q_row_pad = 1 + random.Below(9);
  p.out_dtype = Pick(random, {DType::kF32, DType::kF32, DType::kBF16, DType::kF16});
  if (random.OneIn(5)) p.out_head_pad = Pick<std::int64_t>(random, {1, 4, 8});
  if (random.OneIn(5)) p.out_row_pad = 1 + random.Below(9);
  if (random.OneIn(6)) p.extra_rows = 1 + random.Below(3);
  p.lse = !random.OneIn(6);
  p.lse_base = p.lse && random.OneIn(3) ? LseBase::kTwo : LseBase::kNatural;
  p.kv_settled = random.OneIn(6);
}

void DrawScores(Random& random, Problem& p) {
  if (random.OneIn(4)) p.sm_scale = Pick(random, {0.05f, 0.2f, 1.0f, -0.1f});
  if (random.OneIn(3)) p.cap = Pick(random, {1.0f, 20.0f, 50.0f});
  p.mask = Pick(random, {MaskMode::kNone, MaskMode::kCausal, MaskMode::kCausal, MaskMode::kCustom,
                         MaskMode::kTree});
  p.mask_indptr = random.OneIn(2);
  if (random.OneIn(3)) p.window_left = random.OneIn(6) ? 0 : random.Below(200);
  if (random.OneIn(6)) p.window_right = random.OneIn(6) ? 0 : random.Below(100);
  if (random.OneIn(3)) {
    p.alibi = random.OneIn(2) ? AlibiOrigin::kBottomRight : AlibiOrigin::kRowIndex;
    p.bias_before_cap = random.OneIn(2);
  }
  if (random.OneIn(3)) p.sink = Pick(random, {-2.0f, 0.0f, 3.0f});
  if (random.OneIn(3)) {
    core::RopeSpec rope;
    rope.pairing = random.OneIn(2) ? RopePairing::kHalf : RopePairing::kInterleaved;
    if (random.OneIn(2)) rope.frequency = RopeFrequency::kProportional;
    if (random.OneIn(2)) rope.theta = Pick(random, {500000.0, 1000000.0, 100.0});
    if (random.OneIn(2)) {
      rope.dim = 2 * static_cast<int>(1 + random.Below(p.head_dim_qk / 2));
    }
    if (random.OneIn(2)) rope.scale = Pick(random, {2.0, 8.0, 0.5});
    if (random.OneIn(2)) rope.llama31 = Rope::Llama31{1, 4, Pick(random, {64.0, 8192.0})};
    if (random.OneIn(2)) rope.key_positions = DrawPositions(random);
    p.rope = rope;
  }
  if (random.OneIn(2)) p.q_positions = DrawPositions(random);
}

void DrawPlan(Random& random, Problem& p) {
  p.split = Pick(random, {SplitMode::kAuto, SplitMode::kAuto, SplitMode::kFixed, SplitMode::kFixed,
                          SplitMode::kOff});
  if (p.split == SplitMode::kFixed) {
    p.fixed_split_rows = Pick<std::int64_t>(random, {16, 17, 32, 50, 64, 100, 128});
  }
  if (random.OneIn(4)) p.workspace_limit_bytes = Pick<std::int64_t>(random, {0, 1, 5000, 100000});
  p.accuracy =
      Pick(random, {Accuracy::kNormal, Accuracy::kNormal, Accuracy::kNearExact, Accuracy::kF32});
  if (random.OneIn(5)) p.path = "cpu/f32";
  p.cascade = !random.OneIn(5);
  p.check_pages = !random.OneIn(5);
  p.sigma = Pick(random, {0.3, 0.9, 0.9, 5.6, 0.0});
  p.seed = static_cast<std::uint64_t>(2 + random.Below(1000000));
  const std::int64_t form = random.Below(10);
  if (form == 0) p.data = core::DataForm::kIid;
  if (form == 1) p.data = core::DataForm::kExtreme;
  const std::int64_t poison = random.Below(8);
  if (poison < 2) p.poison = core::PoisonForm::kKeys;
  if (poison == 2) p.poison = core::PoisonForm::kOff;
}

// -------------------------------------------------------------------------------------- legal

bool AnySide(const Problem& p, DType dtype, bool k) {
  bool any = (k ? p.k : p.v).dtype == dtype;
  for (const SegmentSpec& segment : p.segments)
    any |= (k ? segment.k_dtype : segment.v_dtype) == dtype;
  return any;
}

// What an option needs of the others, so that nothing is drawn that must be refused.
void MakeLegal(Problem& p) {
  const auto round_up = [](int n, int step) { return (n + step - 1) / step * step; };
  if (p.q_dtype == DType::kNVFP4 || AnySide(p, DType::kNVFP4, true)) {
    p.head_dim_qk = round_up(p.head_dim_qk, 16);
  }
  if (AnySide(p, DType::kNVFP4, false)) p.head_dim_vo = round_up(p.head_dim_vo, 16);
  bool pages_of_four = p.page_size % 4 == 0;
  for (const SegmentSpec& segment : p.segments) {
    pages_of_four &= segment.page_size.value_or(4) % 4 == 0;
  }
  if (!AnySide(p, DType::kNVFP4, false) || !pages_of_four || p.head_dim_vo % 64 != 0) {
    p.scale_layout = ScaleLayout::kLinear;
  }
  if (p.table == core::TableForm::kPadded) p.lengths = core::LengthForm::kKvLen;
  if (p.mask == MaskMode::kTree) {
    for (std::size_t r = 0; r < p.q_len.size(); ++r) p.q_len[r] = std::min(p.q_len[r], p.kv_len[r]);
  }
  if (p.mask != MaskMode::kTree && p.mask != MaskMode::kCustom) p.mask_indptr = false;
  if (!p.rope && p.window_left < 0 && p.window_right < 0) p.q_positions = {};
  if (!p.alibi || p.cap == 0) p.bias_before_cap = false;
  if (p.split == SplitMode::kFixed) p.workspace_limit_bytes = -1;  // It needs what it needs.
  if (p.rope) p.rope->dim = std::min(p.rope->dim, p.head_dim_qk);
  // Rotated, the extreme logits spread over +-5e5, where f32 itself resolves no better than 0.03.
  if (p.rope && p.data == core::DataForm::kExtreme) p.data = core::DataForm::kIid;
  // f16 outputs hold no values far from one, so nothing may scale them there.
  if (p.out_dtype == DType::kF16) {
    for (float& global : p.v.global) global = std::clamp(global, 0x1p-4f, 16.0f);
  }
}

// Dot products of the oracle; problems above the limit are shrunk, so that a sweep stays quick.
double Work(const Problem& p) {
  double work = 0;
  for (std::size_t r = 0; r < p.q_len.size(); ++r) {
    const double rows = static_cast<double>(p.q_len[r]) * p.q_heads + 3.0 * p.kv_heads;
    work += rows * static_cast<double>(p.kv_len[r]) * (p.head_dim_qk + p.head_dim_vo);
  }
  return work;
}

// `keep_dims`: of a class.
void Shrink(Problem& p, bool keep_dims) {
  constexpr double kMaxWork = 1.5e7;
  while (Work(p) > kMaxWork) {
    bool changed = false;
    for (std::int64_t& rows : p.q_len) {
      if (rows > 3) {
        rows = (rows + 1) / 2;
        changed = true;
      }
    }
    if (changed) continue;
    if (p.head_dim_qk > 64 && p.head_dim_vo > 64 && !keep_dims) {
      p.head_dim_qk = 64;
      p.head_dim_vo = 64;
    } else if (p.q_heads > p.kv_heads) {
      p.q_heads = p.kv_heads;
    } else {
      return;
    }
    MakeLegal(p);
  }
}

Problem Draw(std::uint64_t seed, std::int64_t index) {
  Random random(core::HashOf(seed, index, 21));
  Problem p;
  DrawHeads(random, p);
  DrawLengths(random, p);
  DrawCaches(random, p);
  DrawQuery(random, p);
  DrawScores(random, p);
  DrawPlan(random, p);
  return p;
}

// Dims, dtypes and alignment of class `number`: what a kernel is compiled for.
void DrawKernelClass(std::uint64_t seed, std::int64_t number, Problem& p) {
  Random random(core::HashOf(seed, number, 22));
  const auto dtype = [&] {
    return Pick(random, {DType::kNVFP4, DType::kNVFP4, DType::kNVFP4, DType::kBF16, DType::kF16,
                         DType::kE4M3, DType::kE5M2});
  };
  const auto dims = Pick(
      random, {std::pair(64, 64), std::pair(64, 64), std::pair(128, 128), std::pair(128, 128),
               std::pair(256, 256), std::pair(16, 16), std::pair(80, 48), std::pair(192, 128),
               std::pair(512, 256), std::pair(512, 512), std::pair(96, 96), std::pair(32, 112)});
  p.head_dim_qk = dims.first;
  p.head_dim_vo = dims.second;
  p.k.dtype = dtype();
  p.v.dtype = random.OneIn(2) ? p.k.dtype : dtype();
  const bool mixed = random.OneIn(6);
  const DType other = dtype();
  for (SegmentSpec& segment : p.segments) {
    const bool takes = mixed && &segment == &p.segments.back();
    segment.k_dtype = segment.v_dtype = std::nullopt;
    if (takes) segment.k_dtype = segment.v_dtype = other;
  }
  if (!random.OneIn(3)) {
    p.k.row_pad = p.v.row_pad = p.k.shift = p.v.shift = 0;
    if (p.pool == core::PoolForm::kRows) p.pool = core::PoolForm::kKv;
  }
  if (!random.OneIn(4)) {
    p.rope.reset();
  } else if (!p.rope) {
    p.rope.emplace();
  }
  // One Q is as wide as its MMAs or takes two tiles.
  const bool half = random.OneIn(4);
  if (half) p.q_dtype = DType::kF16;
  if (!half && (p.q_dtype == DType::kF16 || p.q_dtype == DType::kF32)) p.q_dtype = DType::kBF16;
}

Problem Finish(Problem p, bool keep_dims = false) {
  MakeLegal(p);
  Shrink(p, keep_dims);
  return p;
}

}  // namespace

Problem SweepProblem(std::uint64_t seed, std::int64_t index) { return Finish(Draw(seed, index)); }

Problem GpuSweepProblem(std::uint64_t seed, std::int64_t index) {
  constexpr std::int64_t kClasses = 40;
  Problem p = Draw(seed, index);
  DrawKernelClass(seed, index % kClasses, p);
  p.accuracy = Accuracy::kNormal;
  p.path.clear();
  return Finish(std::move(p), true);
}

std::vector<Problem> SweepProblems(std::uint64_t seed, std::int64_t count, DeviceKind device) {
  std::vector<Problem> problems;
  const auto draw = device == DeviceKind::kCuda ? GpuSweepProblem : SweepProblem;
  for (std::int64_t i = 0; i < count; ++i) problems.push_back(draw(seed, i));
  return problems;
}

}  // namespace kvilt::cli
