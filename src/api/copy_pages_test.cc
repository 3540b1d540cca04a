#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>

#include "kvilt/kvilt.h"
#include "src/api/cache_fixture.h"

namespace kvilt {
namespace {

using api::test::CacheMemory;
using api::test::CacheShape;

const Device& OneThread() {
  DeviceOptions options;
  options.threads = 1;
  static const Device device = Device::Open("cpu", options).value();
  return device;
}

TEST(CopyPages, CopiesTheValidRowsOfEveryTensor) {
  CacheShape shape;
  shape.k_dtype = DType::kBF16;
  CacheMemory cache(shape);
  for (std::size_t i = 0; i < cache.k_data.size(); ++i) {
    cache.k_data[i] = static_cast<std::uint8_t>(i % 251);
  }
  for (std::size_t i = 0; i < cache.v_scales.size(); ++i) {
    cache.v_scales[i] = static_cast<std::uint8_t>(i % 113);
  }
  const auto before = cache.Snapshot();
  const std::vector<PageCopy> copies = {{1, 4, 3}, {4, 5, 2}};  // The second reads the first.
  ASSERT_TRUE(CopyPages(OneThread(), cache.segment, copies).ok());
  const std::size_t row = 64 * 2 * 2;  // Two heads of 64 bf16: tokens are outermost in a K page.
  for (std::size_t byte = 0; byte < 4 * row; ++byte) {
    EXPECT_EQ(cache.k_data[4 * 4 * row + byte],
              before[0][(byte < 3 * row ? 1 : 4) * 4 * row + byte]);
    EXPECT_EQ(cache.k_data[5 * 4 * row + byte],
              before[0][(byte < 2 * row ? 1 : 5) * 4 * row + byte]);
  }
  for (std::size_t head = 0; head < 2; ++head) {  // V is HND: [page][head][token][4 scales].
    for (std::size_t byte = 0; byte < 16; ++byte) {
      EXPECT_EQ(cache.v_scales[(4 * 2 + head) * 16 + byte],
                before[3][((byte < 12 ? 1U : 4U) * 2 + head) * 16 + byte]);
    }
  }
}

TEST(CopyPages, RefusalsChangeNothing) {
  CacheMemory cache{CacheShape{}};
  const auto before = cache.Snapshot();
  const auto refused = [&](PageCopy bad, std::string_view field) {
    const std::vector<PageCopy> copies = {{0, 1, 4}, bad};
    const Status status = CopyPages(OneThread(), cache.segment, copies);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), field) << status.message();
    EXPECT_EQ(cache.Snapshot(), before);
  };
  refused({6, 1, 1}, "copies[1].from");
  refused({-1, 1, 1}, "copies[1].from");
  refused({1, 6, 1}, "copies[1].to");
  refused({1, 1, 1}, "copies[1].to");
  refused({1, 2, 5}, "copies[1].rows");
  refused({1, 2, -1}, "copies[1].rows");
  // Pages that are not apart: a copy would write into what it must not touch.
  const std::vector<PageCopy> one = {{0, 1, 4}};
  const auto overlapping = [&](TensorView& tensor, const std::function<void()>& spoil,
                               std::string_view field) {
    const TensorView whole = tensor;
    spoil();
    const Status status = CopyPages(OneThread(), cache.segment, one);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), field) << status.message();
    EXPECT_EQ(cache.Snapshot(), before);
    tensor = whole;
  };
  overlapping(
      cache.k().data, [&] { cache.k().data.stride[0] = 128; }, "cache.k.data.stride[0]");
  overlapping(
      cache.v().scales, [&] { cache.v().scales.stride[2] = 0; }, "cache.v.scales.stride[2]");
  overlapping(
      cache.v().data, [&] { cache.v().data.data = cache.k_data.data(); }, "cache.k.data");
  CacheShape ragged;
  ragged.ragged = true;
  CacheMemory other(ragged);
  EXPECT_EQ(CopyPages(OneThread(), other.segment, {}).field(), "cache");
  cache.v().scales = {};
  EXPECT_EQ(CopyPages(OneThread(), cache.segment, {}).code(), StatusCode::kInvalidArgument);
}

// A token whose every element decodes to one value that names it, exactly: 6 times an e4m3 number.
float ValueOf(std::int64_t token) {
  const auto byte = static_cast<std::uint32_t>(9 + token % 110);  // Normal e4m3 bytes.
  const float scale =
      std::ldexp(1.0f + static_cast<float>(byte & 7) / 8.0f, static_cast<int>(byte >> 3) - 7);
  return 6.0f * scale;
}

// Sequences of a pool over one real cache, against the tokens each should read.
class Engine {
 public:
  explicit Engine(const CacheShape& shape)
      : cache_(shape), pool_(PagePool::Create(shape.pages, shape.page_size).value()) {}

  bool empty() const { return truth_.empty(); }
  void Create() { truth_[pool_.Create().value()]; }
  void Fork() {
    const SequenceId parent = Pick();
    truth_[pool_.Fork(parent).value()] = truth_.at(parent);
  }
  void Free() {
    const SequenceId id = Pick();
    RC_ASSERT(pool_.Free(id).ok());
    truth_.erase(id);
  }
  void Truncate() {
    const SequenceId id = Pick();
    const auto drop = *rc::gen::inRange<std::size_t>(0, truth_[id].size() + 1);
    RC_ASSERT(pool_.Truncate(id, static_cast<std::int64_t>(drop)).ok());
    truth_[id].resize(truth_[id].size() - drop);
  }
  void Append() {
    std::vector<SequenceId> ids;
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> indptr = {0};
    for (const auto& [id, tokens] : truth_) {
      if (!*rc::gen::arbitrary<bool>()) continue;
      ids.push_back(id);
      counts.push_back(*rc::gen::inRange(0, 7));
      indptr.push_back(indptr.back() + counts.back());
    }
    std::vector<PageCopy> copies;
    if (ids.empty() || !pool_.Append(ids, counts, &copies).ok()) return;
    RC_ASSERT(CopyPages(OneThread(), cache_.segment, copies).ok());
    std::vector<float> rows;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::int64_t n = 0; n < counts[i]; ++n) {
        truth_[ids[i]].push_back(next_token_);
        rows.insert(rows.end(), static_cast<std::size_t>(cache_.shape.heads * 64),
                    ValueOf(next_token_++));
      }
    }
    const PagePool::Table table = pool_.MakeTable(ids).value();
    std::get<PagedKv>(cache_.segment.kv).table = table.view();
    AppendRequest append;
    append.cache = cache_.segment;
    append.k = TensorView::Dense(rows.data(), DType::kF32, {indptr.back(), cache_.shape.heads, 64});
    append.v = append.k;
    append.token_indptr = std::span<const std::int64_t>(indptr);
    const Status status = AppendKv(OneThread(), append);
    RC_ASSERT(status.message() == "");
  }

  void Check() {
    std::vector<SequenceId> ids;
    std::vector<float> want;
    for (const auto& [id, tokens] : truth_) {
      ids.push_back(id);
      for (const std::int64_t token : tokens) {
        want.insert(want.end(), static_cast<std::size_t>(cache_.shape.heads * 64), ValueOf(token));
      }
    }
    if (want.empty()) return;
    const PagePool::Table table = pool_.MakeTable(ids).value();
    std::get<PagedKv>(cache_.segment.kv).table = table.view();
    std::vector<float> k(want.size());
    std::vector<float> v(want.size());
    const auto tokens = static_cast<std::int64_t>(want.size()) / (cache_.shape.heads * 64);
    const Status status =
        DequantizeKv(OneThread(), cache_.segment,
                     TensorView::Dense(k.data(), DType::kF32, {tokens, cache_.shape.heads, 64}),
                     TensorView::Dense(v.data(), DType::kF32, {tokens, cache_.shape.heads, 64}));
    RC_ASSERT(status.message() == "");
    RC_ASSERT(k == want);
    RC_ASSERT(v == want);
  }

 private:
  SequenceId Pick() {
    auto it = truth_.begin();
    std::advance(it, *rc::gen::inRange<std::size_t>(0, truth_.size()));
    return it->first;
  }

  CacheMemory cache_;
  PagePool pool_;
  std::map<SequenceId, std::vector<std::int64_t>> truth_;
  std::int64_t next_token_ = 0;
};

void Exercise(const CacheShape& shape) {
  Engine engine(shape);
  const int steps = *rc::gen::inRange(1, 30);
  for (int step = 0; step < steps; ++step) {
    const int kind = *rc::gen::inRange(0, 9);
    if (engine.empty() || kind == 0) {
      engine.Create();
    } else if (kind <= 2) {
      engine.Fork();
    } else if (kind == 3) {
      engine.Free();
    } else if (kind == 4) {
      engine.Truncate();
    } else {
      engine.Append();
    }
    engine.Check();
  }
}

RC_GTEST_PROP(PoolOverCache, OwnersReadTheirOwnTokensInterleavedScales, ()) {
  CacheShape shape;
  shape.pages = 16;
  shape.interleaved_v = true;
  Exercise(shape);
}

RC_GTEST_PROP(PoolOverCache, OwnersReadTheirOwnTokensAnyPageSize, ()) {
  CacheShape shape;
  shape.pages = 16;
  shape.page_size = *rc::gen::inRange(1, 7);
  shape.v_layout = KvLayout::kNHD;
  shape.v_dtype = *rc::gen::element(DType::kNVFP4, DType::kF32);
  Exercise(shape);
}

}  // namespace
}  // namespace kvilt
