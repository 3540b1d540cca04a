// One decode step over a paged NVFP4 cache: allocate pages, append keys and values, plan, run.
#include <kvilt/kvilt.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr std::int64_t kPages = 256, kPageSize = 16, kTokens = 3000;

// An example ends at the first error; a server would hand the status on.
void Must(const kvilt::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

std::vector<float> Wave(std::int64_t size, double step) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(step * static_cast<double>(i)));
  }
  return values;
}

// K or V: two 4-bit codes per byte, and one scale for each 16 elements.
struct Side {
  std::vector<std::uint8_t> codes =
      std::vector<std::uint8_t>(kPages * kPageSize * kKvHeads * kHeadDim / 2);
  std::vector<std::uint8_t> scales =
      std::vector<std::uint8_t>(kPages * kPageSize * kKvHeads * kHeadDim / 16);

  kvilt::CacheSide View() {
    kvilt::CacheSide side;
    side.data = kvilt::TensorView::Dense(codes.data(), kvilt::DType::kNVFP4,
                                         {kPages, kPageSize, kKvHeads, kHeadDim / 2});
    side.scales = kvilt::TensorView::Dense(scales.data(), kvilt::DType::kE4M3,
                                           {kPages, kPageSize, kKvHeads, kHeadDim / 16});
    side.global.value = 1.0f / 2688;  // Largest magnitude / (6 * 448).
    return side;
  }
};

}  // namespace

int main() {
  using kvilt::DType;
  using kvilt::TensorView;
  kvilt::Device device = kvilt::Device::Open("cpu").value();

  // Pages for one sequence of 3000 tokens.
  kvilt::PagePool pool = kvilt::PagePool::Create(kPages, kPageSize).value();
  const kvilt::SequenceId sequences[] = {pool.Create().value()};
  const std::int64_t new_tokens[] = {kTokens};
  std::vector<kvilt::PageCopy> copies;  // Stays empty: nothing is shared.
  Must(pool.Append(sequences, new_tokens, &copies));
  const kvilt::PagePool::Table table = pool.MakeTable(sequences).value();

  Side k_side, v_side;
  const kvilt::Segment cache{kvilt::PagedKv{k_side.View(), v_side.View(), table.view()}, {}};
  std::vector<float> k = Wave(kTokens * kKvHeads * kHeadDim, 0.37);
  std::vector<float> v = Wave(kTokens * kKvHeads * kHeadDim, 0.73);
  std::vector<float> q = Wave(kHeads * kHeadDim, 0.11);
  std::vector<float> out(q.size()), lse(kHeads);
  const std::int64_t k_rows[] = {0, kTokens}, q_rows[] = {0, 1};

  // [readme]
  // Quantize 3000 tokens of keys and values into the pages of the cache.
  kvilt::AppendRequest append;
  append.k = TensorView::Dense(k.data(), DType::kF32, {kTokens, kKvHeads, kHeadDim});
  append.v = TensorView::Dense(v.data(), DType::kF32, {kTokens, kKvHeads, kHeadDim});
  append.cache = cache;
  append.token_indptr = {k_rows};
  Must(kvilt::AppendKv(device, append));

  // Attend to them with one query token: 32 query heads over 8 KV heads.
  kvilt::AttentionRequest request;
  request.q = TensorView::Dense(q.data(), DType::kF32, {1, kHeads, kHeadDim});
  request.q_indptr = {q_rows};
  request.segments = {cache};
  request.mask = kvilt::MaskMode::kCausal;
  request.out = TensorView::Dense(out.data(), DType::kF32, {1, kHeads, kHeadDim});
  request.lse = TensorView::Dense(lse.data(), DType::kF32, {1, kHeads});
  kvilt::Plan plan = kvilt::MakePlan(request, device.spec()).value();  // Pure: no device needed.
  std::puts(kvilt::Describe(plan).c_str());                            // What will run.
  kvilt::PreparedPlan prepared = kvilt::Prepare(device, std::move(plan)).value();
  kvilt::Buffer workspace =
      kvilt::Buffer::Allocate(device, prepared.plan().workspace_bytes).value();
  Must(kvilt::Run(prepared, request, {workspace.data(), std::size_t(workspace.size_bytes())}));
  // [/readme]

  for (std::int64_t head = 0; head < kHeads; head += 8) {
    std::printf("head %2d: lse %.4f, out", int(head), lse[std::size_t(head)]);
    for (std::int64_t i = 0; i < 4; ++i) {
      std::printf(" %+.5f", out[std::size_t(head * kHeadDim + i)]);
    }
    std::puts("");
  }
  return 0;
}
