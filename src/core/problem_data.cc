#include "src/core/problem_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "src/core/check.h"
#include "src/core/host.h"
#include "src/core/problem_cache.h"
#include "src/core/problem_limits.h"
#include "src/core/problem_query.h"
#include "src/core/random.h"

namespace kvilt::core {
namespace {

constexpr std::uint8_t kDataPoison = 0xFF;   // NaN in f32, bf16, f16, fp8; -6 as e2m1 codes.
constexpr std::uint8_t kScalePoison = 0x7F;  // NaN in e4m3.
constexpr std::int64_t kGuardBytes = 1024;
constexpr std::uint8_t kGuardByte = 0xA5;

// A segment with the problem's values where it has none of its own.
CacheSpec SpecOf(const Problem& problem, std::int64_t index) {
  CacheSpec spec{problem.k, problem.v, problem.cache, problem.page_size, {}, {}};
  if (!problem.segments.empty()) {
    const SegmentSpec& segment = problem.segments[static_cast<std::size_t>(index)];
    spec.k.dtype = segment.k_dtype.value_or(spec.k.dtype);
    spec.v.dtype = segment.v_dtype.value_or(spec.v.dtype);
    spec.cache = segment.cache.value_or(spec.cache);
    spec.page_size = segment.page_size.value_or(spec.page_size);
    spec.owners = segment.owners;
  }
  if (!spec.owners.empty()) {
    spec.lengths = {problem.segments[static_cast<std::size_t>(index)].length};
  } else {
    for (std::int64_t r = 0; r < problem.batch(); ++r) {
      spec.lengths.push_back(SegmentLength(problem, r, index));
    }
  }
  return spec;
}

std::int64_t SegmentBegin(const Problem& problem, std::int64_t request, std::int64_t segment) {
  std::int64_t begin = 0;
  for (std::int64_t s = 0; s < segment; ++s) begin += SegmentLength(problem, request, s);
  return begin;
}

bool NeedsMask(const Problem& problem) {
  return problem.mask == MaskMode::kCustom || problem.mask == MaskMode::kTree;
}

}  // namespace

struct ProblemData::Impl {
  Problem problem;
  AttentionRequest request;
  PlanOptions options;

  std::vector<CacheMemory> caches;
  std::vector<std::vector<RowContent>> contents;
  PaddedRows q, q_scales, out, lse;
  IndexMemory q_indptr, q_positions, key_positions;
  MaskMemory mask;
  std::vector<float> slopes, sinks;
  AlignedMemory workspace;
  std::int64_t workspace_bytes = 0;
  std::uint8_t out_poison = kDataPoison;
  bool addresses_only = false;

  Status BuildCaches();
  void DescribeContents();
  // The keys of a table row that stay poison: those that no owner's row sees.
  std::vector<std::uint8_t> Unseen(const CacheSpec& spec, std::int64_t segment, std::int64_t row,
                                   const std::vector<std::vector<std::uint8_t>>& by_request) const;
  Status BuildQueries();
  void BuildOptions();
  void FillCaches(std::uint8_t data_byte, std::uint8_t scale_byte);
};

Status ProblemData::Impl::BuildCaches() {
  const auto count = std::max<std::size_t>(problem.segments.size(), 1);
  for (std::size_t s = 0; s < count; ++s) {
    auto cache = CacheMemory::Create(problem, SpecOf(problem, static_cast<std::int64_t>(s)),
                                     HashOf(problem.seed, s, 4), addresses_only);
    if (!cache) return cache.status();
    caches.push_back(std::move(cache).value());
  }
  if (!addresses_only) {
    DescribeContents();
    FillCaches(kDataPoison, kScalePoison);
  }
  for (const CacheMemory& cache : caches) request.segments.push_back(cache.segment());
  return {};
}

std::vector<std::uint8_t> ProblemData::Impl::Unseen(
    const CacheSpec& spec, std::int64_t segment, std::int64_t row,
    const std::vector<std::vector<std::uint8_t>>& by_request) const {
  std::vector<std::int64_t> requests(spec.owners.begin(), spec.owners.end());
  if (requests.empty()) requests = {row};
  std::vector<std::uint8_t> unseen(
      static_cast<std::size_t>(spec.lengths[static_cast<std::size_t>(row)]), 1);
  for (std::int64_t r : requests) {
    const auto& keys = by_request[static_cast<std::size_t>(r)];
    if (keys.empty()) return {};
    const auto begin = static_cast<std::size_t>(SegmentBegin(problem, r, segment));
    for (std::size_t t = 0; t < unseen.size(); ++t) unseen[t] &= keys[begin + t];
  }
  if (problem.poison == PoisonForm::kKeys) return unseen;
  // Whole pages only.
  if (spec.cache == CacheKind::kRagged) return {};
  const auto page = static_cast<std::size_t>(spec.page_size);
  for (std::size_t t = 0; t < unseen.size(); t += page) {
    const auto begin = unseen.begin() + static_cast<std::ptrdiff_t>(t);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(page, unseen.size() - t));
    const bool whole = std::all_of(begin, end, [](std::uint8_t key) { return key == 1; });
    std::fill(begin, end, whole);
  }
  return unseen;
}

void ProblemData::Impl::DescribeContents() {
  std::vector<std::vector<std::uint8_t>> unseen;
  const std::vector<std::int64_t> positions(q_positions.values().begin(),
                                            q_positions.values().end());
  for (std::int64_t r = 0; r < problem.batch(); ++r) {
    unseen.push_back(UnseenKeys(problem, r, positions, mask));
  }
  for (std::size_t s = 0; s < caches.size(); ++s) {
    const auto segment = static_cast<std::int64_t>(s);
    const CacheSpec spec = SpecOf(problem, segment);
    std::vector<RowContent> rows;
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(spec.lengths.size()); ++row) {
      RowContent content;
      const bool shared = !spec.owners.empty();
      // The first shared segment holds what `prefix=` gives to keys of private ones.
      content.id = shared ? HashOf(problem.seed, s, 6) : ContentId(problem, row);
      content.prefix_id = HashOf(problem.seed, 0, 6);
      content.prefix = shared ? 0 : problem.prefix;
      content.first_position = shared ? 0 : SegmentBegin(problem, row, segment);
      content.unseen = Unseen(spec, segment, row, unseen);
      rows.push_back(std::move(content));
    }
    contents.push_back(std::move(rows));
  }
}

void ProblemData::Impl::FillCaches(std::uint8_t data_byte, std::uint8_t scale_byte) {
  const bool poison = problem.poison != PoisonForm::kOff;
  for (std::size_t s = 0; s < caches.size(); ++s) {
    caches[s].Fill(problem.data, contents[s], poison ? data_byte : 0, poison ? scale_byte : 0);
  }
}

Status ProblemData::Impl::BuildQueries() {
  const std::vector<std::int64_t> indptr = PrefixSums(problem.q_len);
  const std::int64_t rows = indptr.back() + problem.extra_rows;
  const Problem& p = problem;
  q = PaddedRows(p.q_dtype, rows, p.q_heads, RowElements(p.q_dtype, p.head_dim_qk), p.q_head_pad,
                 p.q_row_pad, addresses_only);
  out = PaddedRows(p.out_dtype, rows, p.q_heads, p.head_dim_vo, p.out_head_pad, p.out_row_pad,
                   addresses_only);
  if (!q.allocated() || !out.allocated()) {
    return Status::Exhausted("problem", "no memory for q and out");
  }
  q.Fill(kDataPoison);
  if (p.q_dtype == DType::kNVFP4) {
    q_scales = PaddedRows(DType::kE4M3, rows, p.q_heads, p.head_dim_qk / kBlockElements,
                          p.q_head_pad, p.q_row_pad, addresses_only);
    q_scales.Fill(kScalePoison);
    request.q_scales = q_scales.view();
  }
  if (p.lse) {
    lse = PaddedRows(DType::kF32, rows, p.q_heads, 1, p.out_head_pad > 0, p.out_row_pad > 0,
                     addresses_only);
    request.lse = lse.view(2);
  }
  // The largest typical K among the segments sets the scale of q.
  std::vector<double> k_rms;
  for (int head = 0; head < p.kv_heads; ++head) {
    const auto& global = p.k.global;
    const double multiplier = global[std::min(global.size() - 1, static_cast<std::size_t>(head))];
    double stored = 0;
    for (const CacheMemory& cache : caches) stored = std::max(stored, cache.k_table().rms);
    k_rms.push_back(stored * multiplier);
  }
  request.q_scale = addresses_only ? p.q_scale.value_or(1.0f) : FillQueries(p, k_rms, q, q_scales);
  request.q = q.view();
  request.out = out.view();
  q_indptr = IndexMemory(indptr, p.index);
  request.q_indptr = q_indptr.view();
  return {};
}

void ProblemData::Impl::BuildOptions() {
  const Problem& p = problem;
  request.lse_base = p.lse_base;
  request.sm_scale = p.sm_scale;
  request.logits_soft_cap = p.cap;
  request.mask = p.mask;
  request.window_left = p.window_left;
  request.window_right = p.window_right;
  request.bias_before_cap = p.bias_before_cap;
  request.kv_settled = p.kv_settled;
  if (NeedsMask(p)) {
    request.mask_bits = TensorView::Dense(mask.bits.data(), DType::kU8,
                                          {static_cast<std::int64_t>(mask.bits.size())});
    if (p.mask_indptr) request.mask_indptr = mask.indptr.view();
  }
  if (p.q_positions.kind != PositionSpec::Kind::kNone) request.q_positions = q_positions.view();
  if (p.alibi) {
    slopes = MakeSlopes(p);
    request.alibi = Alibi{TensorView::Dense(slopes.data(), DType::kF32, {p.q_heads}), *p.alibi};
  }
  if (p.sink) {
    sinks = MakeSinks(p);
    request.sink = TensorView::Dense(sinks.data(), DType::kF32, {p.q_heads});
  }
  if (p.rope) {
    Rope rope{p.rope->pairing,
              p.rope->frequency,
              p.rope->theta,
              p.rope->dim,
              p.rope->scale,
              p.rope->llama31,
              {}};
    if (p.rope->key_positions.kind != PositionSpec::Kind::kNone) {
      key_positions = IndexMemory(MakeKeyPositions(p), p.index);
      rope.key_positions = key_positions.view();
    }
    request.rope = rope;
  }
  options.split = p.split;
  options.fixed_split_rows = p.fixed_split_rows;
  options.accuracy = p.accuracy;
  options.workspace_limit_bytes = p.workspace_limit_bytes;
  options.path = p.path;
  options.allow_cascade = p.cascade;
  options.check_pages = p.check_pages;
}

// ---------------------------------------------------------------------------------- ProblemData

ProblemData::ProblemData(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProblemData::ProblemData(ProblemData&&) noexcept = default;
ProblemData& ProblemData::operator=(ProblemData&&) noexcept = default;
ProblemData::~ProblemData() = default;

const Problem& ProblemData::problem() const { return impl_->problem; }
const AttentionRequest& ProblemData::request() const { return impl_->request; }
const PlanOptions& ProblemData::plan_options() const { return impl_->options; }

void ProblemData::PoisonOutputs(std::uint8_t byte) {
  impl_->out_poison = byte;
  impl_->out.Fill(byte);
  impl_->lse.Fill(byte);
}

void ProblemData::PoisonCaches(std::uint8_t byte) { impl_->FillCaches(byte, byte); }

std::span<std::byte> ProblemData::Workspace(std::int64_t bytes) {
  Impl& impl = *impl_;
  const auto needed = static_cast<std::size_t>(bytes + 2 * kGuardBytes);
  if (impl.workspace.size_bytes() != needed) impl.workspace = AlignedMemory(needed);
  impl.workspace_bytes = bytes;
  KVILT_CHECK(impl.workspace.data() != nullptr);
  impl.workspace.Fill(kGuardByte);
  std::byte* begin = impl.workspace.data() + kGuardBytes;
  std::fill_n(begin, bytes, std::byte{0xFF});
  return {begin, static_cast<std::size_t>(bytes)};
}

Status ProblemData::CheckGuards() const {
  const Impl& impl = *impl_;
  const std::int64_t rows = impl.q_indptr.values().back();
  if (const auto at = impl.out.FirstTouched(rows, impl.out_poison)) {
    return Status::Runtime("out", fmt::format("byte {} was written and is no part of a row", *at));
  }
  if (impl.problem.lse) {
    if (const auto at = impl.lse.FirstTouched(rows, impl.out_poison)) {
      return Status::Runtime("lse",
                             fmt::format("byte {} was written and is no part of a row", *at));
    }
  }
  const std::byte* bytes = impl.workspace.data();
  for (std::int64_t i = 0; bytes != nullptr && i < kGuardBytes; ++i) {
    const std::int64_t behind = kGuardBytes + impl.workspace_bytes + i;
    for (std::int64_t at : {i, behind}) {
      if (bytes[at] != static_cast<std::byte>(kGuardByte)) {
        return Status::Runtime(
            "workspace", fmt::format("byte {} was written, expected 0 to {}", at - kGuardBytes,
                                     impl.workspace_bytes - 1));
      }
    }
  }
  return {};
}

std::int64_t ProblemData::kv_bytes() const {
  std::int64_t bytes = 0;
  for (const CacheMemory& cache : impl_->caches) bytes += cache.kv_bytes();
  return bytes;
}

namespace {

Result<ProblemData> Build(const Problem& problem, bool addresses_only) {
  auto impl = std::make_unique<ProblemData::Impl>();
  impl->problem = problem;
  impl->addresses_only = addresses_only;
  if (NeedsMask(problem)) impl->mask = MakeMask(problem);
  if (problem.q_positions.kind != PositionSpec::Kind::kNone) {
    impl->q_positions = IndexMemory(MakeQueryPositions(problem), problem.index);
  }
  KVILT_RETURN_IF_ERROR(impl->BuildCaches());
  KVILT_RETURN_IF_ERROR(impl->BuildQueries());
  impl->BuildOptions();
  ProblemData data(std::move(impl));
  data.PoisonOutputs();
  return data;
}

Result<ProblemData> CheckAndBuild(const Problem& problem, bool addresses_only) {
  KVILT_RETURN_IF_ERROR(CheckProblemLimits(problem));
  if (!addresses_only) {
    KVILT_RETURN_IF_ERROR(CheckProblemMemory(problem, AvailableMemoryBytes()));
  }
  try {
    return Build(problem, addresses_only);
  } catch (const std::bad_alloc&) {
    return Status::Exhausted("problem", "not enough memory for its operands");
  }
}

}  // namespace

Result<ProblemData> BuildProblem(const Problem& problem) { return CheckAndBuild(problem, false); }

Result<ProblemData> BuildProblemShape(const Problem& problem, DeviceKind device) {
  Result<ProblemData> data = CheckAndBuild(problem, true);
  if (data.ok()) data->PlaceOn({device, 0});
  return data;
}

std::vector<std::span<std::byte>> ProblemData::Memory() {
  Impl& impl = *impl_;
  std::vector<std::span<std::byte>> blocks;
  for (CacheMemory& cache : impl.caches) cache.AddMemory(blocks);
  for (PaddedRows* rows : {&impl.q, &impl.q_scales, &impl.out, &impl.lse}) {
    if (rows->allocated()) blocks.push_back(rows->memory());
  }
  if (impl.workspace.data() != nullptr) {
    blocks.emplace_back(impl.workspace.data(), impl.workspace.size_bytes());
  }
  for (const auto bytes : {std::as_writable_bytes(std::span(impl.mask.bits)),
                           std::as_writable_bytes(std::span(impl.slopes)),
                           std::as_writable_bytes(std::span(impl.sinks))}) {
    if (!bytes.empty()) blocks.push_back(bytes);
  }
  return blocks;
}

void ProblemData::PlaceOn(DeviceId device) {
  AttentionRequest& request = impl_->request;
  for (TensorView* tensor : {&request.q, &request.q_scales, &request.out, &request.lse,
                             &request.mask_bits, &request.sink}) {
    tensor->device = device;
  }
  if (request.alibi) request.alibi->slopes.device = device;
  for (Segment& segment : request.segments) {
    std::visit(
        [&](auto& cache) {
          for (CacheSide* side : {&cache.k, &cache.v}) {
            side->data.device = device;
            side->scales.device = device;
          }
        },
        segment.kv);
  }
}

}  // namespace kvilt::core
