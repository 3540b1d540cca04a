// Pages so far apart that 32-bit offsets wrap: append, run and dequantize against a dense cache.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "src/api/cache_fixture.h"

namespace kvilt::api::test {
namespace {

// Address space that takes memory only where it is touched.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  void* data() const { return data_ == MAP_FAILED ? nullptr : data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Elements from page to page: the last page's offset exceeds 2^32 - 32 elements, in bytes too.
constexpr std::int64_t kFarStride = (std::int64_t{1} << 31) - 16;
constexpr std::int64_t kPages = 3, kTokens = 11;

std::size_t SpanBytes(const TensorView& view) {
  return static_cast<std::size_t>(((kPages - 1) * view.stride[0] + view.stride[0]) *
                                  StorageBytes(view.dtype));
}

struct Outputs {
  std::vector<float> out, k, v;
};

Outputs AppendRunDequantize(const Device& device, CacheMemory& cache, const RowMemory& k,
                            const RowMemory& v, RowMemory& q) {
  AppendRequest append;
  append.k = k.view;
  append.v = v.view;
  append.cache = cache.segment;
  const std::vector<std::int64_t> tokens = {0, kTokens};
  append.token_indptr = tokens;
  EXPECT_TRUE(AppendKv(device, append).ok());

  Outputs results;
  results.out.assign(q.values.size(), 0);
  AttentionRequest request;
  request.q = q.view;
  const std::vector<std::int64_t> rows = {0, 1};
  request.q_indptr = rows;
  request.mask = MaskMode::kCausal;
  request.segments = {cache.segment};
  request.out = q.view;
  request.out.data = results.out.data();
  Result<PreparedPlan> prepared = Prepare(device, MakePlan(request, device.spec()).value());
  EXPECT_TRUE(Run(*prepared, request, {}).ok());

  results.k.resize(k.values.size());
  results.v.resize(v.values.size());
  TensorView out_k = k.view, out_v = v.view;
  out_k.data = results.k.data();
  out_v.data = results.v.data();
  EXPECT_TRUE(DequantizeKv(device, cache.segment, out_k, out_v).ok());
  return results;
}

TEST(FarPages, P81_offsets_beyond_32_bits) {
  DeviceOptions one;
  one.threads = 1;
  const Device device = Device::Open("cpu", one).value();
  for (const DType dtype : {DType::kNVFP4, DType::kE4M3, DType::kBF16}) {
    CacheShape shape;
    shape.k_dtype = shape.v_dtype = dtype;
    shape.pages = kPages;
    const RowMemory k(kTokens, shape.heads, shape.head_dim_k, 1);
    const RowMemory v(kTokens, shape.heads, shape.head_dim_v, 2);
    RowMemory q(1, 2 * shape.heads, shape.head_dim_k, 3);

    CacheMemory near(shape);
    near.SetTable({0, 3}, {2, 0, 1}, {kTokens});
    const Outputs expected = AppendRunDequantize(device, near, k, v, q);

    CacheMemory far(shape);
    far.SetTable({0, 3}, {2, 0, 1}, {kTokens});
    std::vector<std::unique_ptr<Reserved>> memory;
    for (CacheSide* side : {&far.k(), &far.v()}) {
      for (TensorView* view : {&side->data, &side->scales}) {
        if (!view->defined()) continue;
        view->stride[0] = kFarStride;
        memory.push_back(std::make_unique<Reserved>(SpanBytes(*view)));
        view->data = memory.back()->data();
        ASSERT_NE(view->data, nullptr) << "no address space for " << SpanBytes(*view) << " bytes";
      }
    }
    const Outputs found = AppendRunDequantize(device, far, k, v, q);
    EXPECT_EQ(found.out, expected.out) << Name(dtype);
    EXPECT_EQ(found.k, expected.k) << Name(dtype);
    EXPECT_EQ(found.v, expected.v) << Name(dtype);
  }
}

}  // namespace
}  // namespace kvilt::api::test
