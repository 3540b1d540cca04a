#include "src/core/cache_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "src/core/query_file.h"

namespace kvilt::core {
namespace {

class CacheFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvilt_cache_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::iota(bytes_.begin(), bytes_.end(), std::uint8_t{0});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "cache.safetensors").string(); }

  // 3 pages of 4 tokens, 2 heads of 64: K nvfp4 HND, V e4m3 NHD in rows with padding.
  Segment Paged() {
    PagedKv cache;
    cache.k.layout = KvLayout::kHND;
    cache.k.data = TensorView::Dense(bytes_.data(), DType::kNVFP4, {3, 2, 4, 32});
    cache.k.scales = TensorView::Dense(bytes_.data() + 1000, DType::kE4M3, {3, 2, 4, 4});
    cache.k.global.value = 0.0123f;
    cache.v.data = TensorView::Dense(bytes_.data() + 2000, DType::kE4M3, {3, 4, 2, 64});
    for (int dim = 0; dim < 3; ++dim)
      cache.v.data.stride[dim] += cache.v.data.stride[dim] / 64 * 16;
    cache.v.global.array = globals_;
    cache.v.global.array_size = 2;
    cache.table.indptr = std::span<const std::int32_t>(indptr_);
    cache.table.indices = std::span<const std::int64_t>(indices_);
    cache.table.kv_len = std::span<const std::int32_t>(kv_len_);
    return {cache, {}};
  }

  // Saves `segment` and loads it after `change` was made to the metadata.
  std::string ErrorWith(const Segment& segment, const std::string& key, const std::string& text) {
    EXPECT_TRUE(SaveCacheFile(path(), segment).ok());
    Result<TensorFile> file = TensorFile::Load(path());
    Metadata metadata = file->metadata();
    if (text.empty())
      metadata.erase(key);
    else
      metadata[key] = text;
    EXPECT_TRUE(WriteSafetensors(path(), file->tensors(), metadata).ok());
    const Result<CacheFile> loaded = LoadCacheFile(path());
    if (loaded.ok()) return "";
    const std::string prefix = path() + ": ";
    EXPECT_EQ(loaded.status().message().substr(0, prefix.size()), prefix);
    return loaded.status().message().substr(prefix.size());
  }

  std::filesystem::path folder_;
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(8192);
  float globals_[2] = {0.5f, 2.0f};
  std::int32_t indptr_[3] = {0, 1, 3};
  std::int64_t indices_[3] = {2, 0, 1};
  std::int32_t kv_len_[2] = {3, 7};
};

TEST_F(CacheFileTest, PagedRoundTripKeepsDTypesLayoutsGlobalsAndTable) {
  const Segment saved = Paged();
  ASSERT_EQ(SaveCacheFile(path(), saved, {}, {{"source.model", "x"}}).message(), "");
  Result<CacheFile> loaded = LoadCacheFile(path());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const CacheFile file = std::move(*loaded);  // The segment must survive the move.
  const PagedKv& cache = *file.segment.paged();
  EXPECT_EQ(cache.k.data.dtype, DType::kNVFP4);
  EXPECT_EQ(cache.k.scales.dtype, DType::kE4M3);
  EXPECT_EQ(cache.k.layout, KvLayout::kHND);
  EXPECT_EQ(cache.k.scale_layout, ScaleLayout::kLinear);
  EXPECT_EQ(cache.k.global.value, 0.0123f);
  EXPECT_EQ(std::memcmp(cache.k.data.data, bytes_.data(), 3 * 2 * 4 * 32), 0);
  EXPECT_EQ(std::memcmp(cache.k.scales.data, bytes_.data() + 1000, 3 * 2 * 4 * 4), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(cache.k.data.data) % kTensorAlignment, 0u);
  EXPECT_EQ(cache.v.data.dtype, DType::kE4M3);
  EXPECT_EQ(cache.v.data.stride[2], 64);  // The padding is gone.
  EXPECT_EQ(static_cast<const std::uint8_t*>(cache.v.data.data)[64], bytes_[2000 + 80]);
  ASSERT_EQ(cache.v.global.array_size, 2);
  EXPECT_EQ(cache.v.global.array[1], 2.0f);
  EXPECT_EQ(cache.table.indptr.dtype, DType::kI32);
  EXPECT_EQ(cache.table.indices[0], 2);
  EXPECT_EQ(cache.table.kv_len[1], 7);
  EXPECT_FALSE(cache.table.last_page_len.defined());
  EXPECT_EQ(file.file.metadata().at("source.model"), "x");
}

TEST_F(CacheFileTest, Interleaved4PaddedAndSharedRoundTrip) {
  Segment saved = Paged();
  auto& cache = std::get<PagedKv>(saved.kv);
  cache.v = cache.k;
  cache.v.scale_layout = ScaleLayout::kInterleaved4;
  cache.v.scale_row_blocks = 4;
  cache.v.global.value = 1000.0f;
  cache.v.global.allow_unusual = true;
  cache.table = PageTable();
  cache.table.indices = std::span<const std::int64_t>(indices_, 2);
  cache.table.row_stride = 2;
  cache.table.kv_len = std::span<const std::int32_t>(kv_len_, 1);
  saved.owners = {0, 4};
  ASSERT_EQ(SaveCacheFile(path(), saved).message(), "");
  const CacheFile file = LoadCacheFile(path()).value();
  EXPECT_EQ(file.segment.v().scale_layout, ScaleLayout::kInterleaved4);
  EXPECT_EQ(file.segment.v().scale_row_blocks, 4);
  EXPECT_TRUE(file.segment.v().global.allow_unusual);
  EXPECT_EQ(file.segment.paged()->table.row_stride, 2);
  EXPECT_EQ(file.segment.owners, (std::vector<std::int32_t>{0, 4}));
}

TEST_F(CacheFileTest, RaggedRoundTrip) {
  RaggedKv cache;
  cache.k.data = TensorView::Dense(bytes_.data(), DType::kBF16, {5, 2, 32});
  cache.v.data = TensorView::Dense(bytes_.data(), DType::kE5M2, {2, 5, 64});
  cache.v.layout = KvLayout::kHND;
  const std::int64_t indptr[] = {0, 2, 5};
  cache.indptr = std::span<const std::int64_t>(indptr);
  ASSERT_EQ(SaveCacheFile(path(), {cache, {}}).message(), "");
  const CacheFile file = LoadCacheFile(path()).value();
  ASSERT_NE(file.segment.ragged(), nullptr);
  EXPECT_EQ(file.segment.ragged()->indptr[1], 2);
  EXPECT_EQ(file.segment.v().layout, KvLayout::kHND);
}

TEST_F(CacheFileTest, ErrorsNameTheKeyWhatWasFoundAndWhatIsAccepted) {
  struct Case {
    const char* key;
    const char* text;  // Empty: the key is left out.
    const char* error;
  };
  const Case cases[] = {
      {"kvilt.version", "2", "metadata.kvilt.version: '2', expected 1"},
      {"kvilt.version", "",
       "metadata.kvilt.version: missing, expected 1: not a file of this schema (docs/formats.md)"},
      {"kvilt.cache", "dense", "metadata.kvilt.cache: 'dense', accepted: paged, ragged"},
      {"kvilt.k.dtype", "bf16",
       "k.data.dtype: U8 in the file, but metadata.kvilt.k.dtype says bf16"},
      {"kvilt.k.dtype", "int4",
       "metadata.kvilt.k.dtype: 'int4', accepted: f32, bf16, f16, e4m3, e5m2, nvfp4"},
      {"kvilt.k.dtype", "e4m3", "k.scales: present, but dtype e4m3 has no scales"},
      {"kvilt.k.layout", "", "metadata.kvilt.k.layout: missing, accepted: NHD, HND"},
      {"kvilt.k.layout", "NHD",
       "v.data.shape: [3, 4, 2, 64] as NHD means 3 pages x 4 tokens x 2 heads, but k.data [3, 2, "
       "4, 32] as NHD means 3 x 2 x 4"},
      {"kvilt.page_size", "16",
       "metadata.kvilt.page_size: 16, but k.data [3, 2, 4, 32] as HND has pages of 4: page size or "
       "layout is wrong"},
      {"kvilt.page_size", "4.0", "metadata.kvilt.page_size: '4.0', expected a whole number"},
      {"kvilt.k.scale_layout", "swizzled",
       "metadata.kvilt.k.scale_layout: 'swizzled', accepted: linear, interleaved4"},
      {"kvilt.v.scale_layout", "linear",
       "metadata.kvilt.v.scale_layout: given for a side without scales"},
      {"kvilt.k.global", "nan", "metadata.kvilt.k.global: 'nan', expected a finite number"},
      {"kvilt.v.global", "1", "metadata.kvilt.v.global: given beside the tensor v.global"},
      {"kvilt.k.scale_layuot", "linear",
       "metadata.kvilt.k.scale_layuot: unknown key; docs/formats.md lists those of the schema"},
      {"kvilt.owners", "0,x", "metadata.kvilt.owners: '0,x', expected request numbers as in 0,2,5"},
      {"kvilt.cache", "ragged", "k.data.shape: [3, 2, 4, 32], expected rank 3 for a ragged cache"},
      {"note", "anything", ""},
  };
  const Segment paged = Paged();
  for (const Case& one : cases) {
    EXPECT_EQ(ErrorWith(paged, one.key, one.text), one.error) << one.key << " = " << one.text;
  }
}

TEST_F(CacheFileTest, ErrorsNameTheTensor) {
  const auto error = [&](auto change) {
    Segment segment = Paged();
    change(std::get<PagedKv>(segment.kv));
    return ErrorWith(segment, "note", "x");
  };
  EXPECT_EQ(error([](PagedKv& c) { c.k.scales.shape[3] = 2; }),
            "k.scales.shape: [3, 2, 4, 2], expected [3, 2, 4, 4]: one scale for each 16 elements "
            "of k.data");
  EXPECT_EQ(error([](PagedKv& c) { c.k.data.shape[3] = 28; }),
            "k.data.shape[3]: 28 bytes of codes, expected a multiple of 8 (16 elements)");
  EXPECT_EQ(
      error([](PagedKv& c) { c.table.kv_len = IndexArray(); }),
      "page_table.kv_len: expected exactly one of page_table.kv_len and page_table.last_page_len");
  EXPECT_EQ(error([](PagedKv& c) { c.v.data.shape[0] = 2; }).substr(0, 12), "v.data.shape");
  EXPECT_EQ(error([](PagedKv& c) {
              c.v.global.array_size = 2;
              c.v.data.shape[2] = 1;
            }),
            "v.global: F32 [2], expected F32 [1] or [1]");
  EXPECT_EQ(error([](PagedKv& c) { c.k.data.shape[1] = c.k.scales.shape[1] = 0; }),
            "k.data.shape[1]: 0, expected >= 1");
}

TEST_F(CacheFileTest, WriterRefusesKeysOfTheSegment) {
  EXPECT_EQ(SaveCacheFile(path(), Paged(), {}, {{"kvilt.k.dtype", "bf16"}}).message(),
            "metadata.kvilt.k.dtype: is written from the segment");
}

TEST_F(CacheFileTest, QueriesAndOptionsLieBesideTheCache) {
  const std::int32_t positions[] = {5, 6};
  const std::vector<NamedTensor> others = {
      {"q", TensorView::Dense(bytes_.data(), DType::kBF16, {2, 4, 64})},
      {"q_positions", TensorView::Dense(positions, DType::kI32, {2})}};
  const Metadata metadata = {{"kvilt.mask", "causal"},
                             {"kvilt.window_left", "7"},
                             {"kvilt.sm_scale", "0.25"},
                             {"kvilt.rope.theta", "100000"},
                             {"kvilt.rope.pairing", "interleaved"}};
  ASSERT_EQ(SaveCacheFile(path(), Paged(), others, metadata).message(), "");
  const CacheFile file = LoadCacheFile(path()).value();
  Result<QueryFile> loaded = QueryOf(file.file);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const QueryFile query = std::move(*loaded);
  EXPECT_EQ(query.request.q.shape[1], 4);
  EXPECT_EQ(query.request.batch(), 1);
  EXPECT_EQ(query.request.q_indptr[1], 2);
  EXPECT_EQ(query.request.q_positions[1], 6);
  EXPECT_EQ(query.request.mask, MaskMode::kCausal);
  EXPECT_EQ(query.request.window_left, 7);
  EXPECT_EQ(query.request.sm_scale, 0.25f);
  ASSERT_TRUE(query.request.rope.has_value());
  EXPECT_EQ(query.request.rope->theta, 100000.0);
  EXPECT_EQ(query.request.rope->pairing, RopePairing::kInterleaved);
}

TEST_F(CacheFileTest, QueryErrors) {
  const NamedTensor q = {"q", TensorView::Dense(bytes_.data(), DType::kBF16, {2, 4, 64})};
  const auto error = [&](std::vector<NamedTensor> tensors, const Metadata& metadata) {
    EXPECT_TRUE(WriteSafetensors(path(), tensors, metadata).ok());
    const TensorFile file = TensorFile::Load(path()).value();
    const Result<QueryFile> query = QueryOf(file);
    return query.ok() ? std::string() : query.status().message();
  };
  EXPECT_EQ(error({}, {}), "q: no such tensor in the file");
  EXPECT_EQ(error({q, {"q_positions", q.second}}, {}),
            "q_positions.dtype: BF16, expected I32 or I64");
  EXPECT_EQ(error({q}, {}), "");
  EXPECT_EQ(error({q}, {{"note", "without a word of the schema"}}), "");
  EXPECT_EQ(error({q}, {{"kvilt.mask", "causal"}}),
            "metadata.kvilt.version: missing, expected 1: not a file of this schema "
            "(docs/formats.md)");
  EXPECT_EQ(error({q}, {{"kvilt.version", "2"}, {"kvilt.mask", "causal"}}),
            "metadata.kvilt.version: '2', expected 1");
  struct Case {
    const char* key;
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"kvilt.mask", "causal", ""},
      {"kvilt.msak", "causal",
       "metadata.kvilt.msak: unknown key; docs/formats.md lists those of the schema"},
      {"kvilt.mask", "bidirectional",
       "metadata.kvilt.mask: 'bidirectional', accepted: none, causal, custom, tree"},
      {"kvilt.rope.scale", "2", "metadata.kvilt.rope.scale: given without kvilt.rope.theta"},
      {"kvilt.rope.low_freq_factor", "1",
       "metadata.kvilt.rope.low_freq_factor: given without kvilt.rope.theta"},
      {"kvilt.alibi_origin", "row_index",
       "metadata.kvilt.alibi_origin: given without the tensor alibi_slopes"},
      {"kvilt.q.dtype", "e4m3", "q.dtype: BF16 in the file, but metadata.kvilt.q.dtype says e4m3"},
      {"kvilt.q.dtype", "e5m2",
       "metadata.kvilt.q.dtype: 'e5m2', accepted: f32, bf16, f16, e4m3, nvfp4"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(error({q}, {{"kvilt.version", "1"}, {one.key, one.text}}), one.error) << one.key;
  }
  EXPECT_EQ(error({q}, {{"kvilt.version", "1"},
                        {"kvilt.rope.theta", "10000"},
                        {"kvilt.rope.high_freq_factor", "4"}}),
            "metadata.kvilt.rope.high_freq_factor: given without kvilt.rope.original_length");
}

}  // namespace
}  // namespace kvilt::core
