#include "src/core/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

namespace kvilt::core {
namespace {

// A file in memory: header text behind its length, then `data_bytes` zero bytes.
std::vector<std::byte> FileOf(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string ParseError(const std::string& header, std::size_t data_bytes = 0) {
  const auto bytes = FileOf(header, data_bytes);
  const Result<Safetensors> parsed = Safetensors::Parse(bytes);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return parsed.status().message();
}

class TempFile {
 public:
  TempFile() {
    std::string pattern = ::testing::TempDir() + "/kvilt_tensors_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TempFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/a.safetensors"; }

 private:
  std::string folder_;
};

TEST(Safetensors, EveryDTypeRoundTrips) {
  std::vector<std::uint8_t> values(6 * 8);
  std::iota(values.begin(), values.end(), std::uint8_t{1});
  std::vector<NamedTensor> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kI64); ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.emplace_back(std::string(Name(dtype)), TensorView::Dense(values.data(), dtype, {2, 3}));
  }
  const TempFile file;
  ASSERT_TRUE(WriteSafetensors(file.path(), tensors, {{"who", "me"}, {"\u00fcber", "\n\""}}).ok());
  const Result<Safetensors> read = Safetensors::Open(file.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata(), (Metadata{{"who", "me"}, {"\u00fcber", "\n\""}}));
  EXPECT_EQ(read->tensors().size(), tensors.size());
  for (const auto& [name, view] : tensors) {
    const TensorEntry* entry = read->Find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, view.dtype == DType::kNVFP4 ? DType::kU8 : view.dtype);
    EXPECT_EQ(entry->shape, (std::vector<std::int64_t>{2, 3}));
    ASSERT_EQ(entry->bytes.size(), 6u * static_cast<std::size_t>(StorageBytes(view.dtype)));
    EXPECT_EQ(std::memcmp(entry->bytes.data(), values.data(), entry->bytes.size()), 0);
    // Widest first: each tensor is aligned to its element within the file.
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry->bytes.data()) %
                  static_cast<std::uintptr_t>(StorageBytes(view.dtype)),
              0u);
  }
  EXPECT_EQ(read->Find("absent"), nullptr);
}

TEST(Safetensors, StridedViewsAreStoredDense) {
  std::vector<std::int32_t> pool(4 * 10);
  std::iota(pool.begin(), pool.end(), 0);
  TensorView view = TensorView::Dense(pool.data() + 2, DType::kI32, {3, 4});
  view.stride[0] = 10;
  view.stride[1] = 2;
  const TempFile file;
  const std::vector<NamedTensor> tensors = {{"a", view}};
  ASSERT_TRUE(WriteSafetensors(file.path(), tensors, {}).ok());
  const Safetensors read = Safetensors::Open(file.path()).value();
  const std::vector<std::int32_t> expected = {2, 4, 6, 8, 12, 14, 16, 18, 22, 24, 26, 28};
  ASSERT_EQ(read.Find("a")->bytes.size(), expected.size() * 4);
  EXPECT_EQ(std::memcmp(read.Find("a")->bytes.data(), expected.data(), expected.size() * 4), 0);
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(ParseError("{}"), "");
  EXPECT_EQ(ParseError("{}      "), "");
  EXPECT_EQ(ParseError(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "");
  EXPECT_EQ(ParseError(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})", 0), "");
  EXPECT_EQ(ParseError(R"({"__metadata__":{},"a":{"data_offsets":[2,4],"dtype":"U8","shape":[2]},)"
                       R"("b":{"shape":[1],"dtype":"F16","data_offsets":[0,2]}})",
                       4),
            "");
}

TEST(Safetensors, HostileHeadersAreRefusedByTensorAndField) {
  struct Case {
    const char* fields;  // Of the one tensor, a.
    const char* error;
    std::size_t bytes = 4;
  };
  const Case cases[] = {
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,8])",
       "a.data_offsets: [0, 8], expected begin <= end <= 4, the bytes behind the header"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[4,0])",
       "a.data_offsets: [4, 0], expected begin <= end <= 4, the bytes behind the header"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,4])",
       "a.data_offsets: [0, 4] holds 4 bytes, but dtype F32 and shape [2] need 8"},
      {R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])",
       "a.shape: [4294967296, 4294967296] needs more than 2^63 bytes"},
      {R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])",
       "a.shape: 18446744073709551615 does not fit 63 bits"},
      {R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])",
       "a.shape: the number -1, expected an array of whole numbers >= 0"},
      {R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])",
       "a.shape: the number 1.0, expected an array of whole numbers >= 0"},
      {R"("dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[0,4])",
       "a.shape: more than 6 numbers, expected a rank up to that"},
      {R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])",
       "a.shape: an array, expected an array of whole numbers >= 0"},
      {R"("dtype":"F64","shape":[1],"data_offsets":[0,4])",
       "a.dtype: 'F64', accepted: F32, BF16, F16, F8_E4M3, F8_E5M2, U8, I32, I64"},
      {R"("dtype":7,"shape":[1],"data_offsets":[0,4])",
       "a.dtype: the number 7, expected a dtype name"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0])",
       "a.data_offsets: 1 numbers, expected [begin, end]"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])",
       "a.data_offsets: more than 2 numbers, expected [begin, end]"},
      {R"("dtype":"F32","shape":[1])", "a.data_offsets: missing"},
      {R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])", "a.dtype: given twice"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1)",
       "a.extra: unknown, expected dtype, shape, data_offsets"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,4])",
       "file: 6 bytes of data behind the header, but the tensors end at 4", 6},
  };
  for (const Case& one : cases) {
    const std::string header = std::string("{\"a\":{") + one.fields + "}}";
    EXPECT_EQ(ParseError(header, one.bytes), one.error) << one.fields;
  }
}

TEST(Safetensors, HostileFilesAreRefused) {
  const std::string ok = R"({"dtype":"U8","shape":[4],"data_offsets":)";
  EXPECT_EQ(ParseError("{\"a\":" + ok + "[0,4]},\"a\":" + ok + "[4,8]}}", 8),
            "a: given twice in the header");
  EXPECT_EQ(ParseError("{\"a\":" + ok + "[0,4]},\"b\":" + ok + "[2,6]}}", 6),
            "b.data_offsets: begins at 2, expected 4 where a ends: tensors overlap");
  EXPECT_EQ(ParseError("{\"a\":" + ok + "[0,4]},\"b\":" + ok + "[5,9]}}", 9),
            "b.data_offsets: begins at 5, expected 4 where a ends: tensors leave a hole");
  EXPECT_EQ(ParseError(R"({"__metadata__":{"k":1}})"),
            "__metadata__.k: the number 1, expected a text");
  EXPECT_EQ(ParseError(R"({"__metadata__":{"k":"1","k":"2"}})"), "__metadata__.k: given twice");
  EXPECT_EQ(ParseError("[]"), "header: an array, expected an object of tensors");
  EXPECT_EQ(ParseError(R"({"a":3})"),
            "a: the number 3, expected an object with dtype, shape, data_offsets");
  EXPECT_EQ(ParseError("{\"a"), "header: not JSON at byte 4 of the header");
  EXPECT_EQ(ParseError("{}{}"), "header: not JSON at byte 3 of the header");
  EXPECT_EQ(ParseError("{\"\xff\":1}").substr(0, 16), "header: not JSON");
  EXPECT_EQ(ParseError(std::string(1 << 20, '[')),
            "header: an array, expected an object of tensors");
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{\"a\":";
  EXPECT_EQ(ParseError(nested), "a.a: unknown, expected dtype, shape, data_offsets");

  std::vector<std::byte> bytes(7);
  EXPECT_EQ(Safetensors::Parse(bytes).status().message(),
            "header: a file of 7 bytes, expected 8 bytes of header length first");
  bytes.assign(16, std::byte{0xFF});
  EXPECT_EQ(Safetensors::Parse(bytes).status().message(),
            "header.length: 18446744073709551615, expected at most 8");
}

TEST(Safetensors, WriterRefusesWhatReadersWould) {
  float x = 1;
  const auto write = [&](const std::vector<NamedTensor>& tensors, const Metadata& metadata = {}) {
    return WriteSafetensors(TempFile().path(), tensors, metadata).message();
  };
  const TensorView one = TensorView::Dense(&x, DType::kF32, {1});
  EXPECT_EQ(write({{"a", one}, {"a", one}}), "a: given twice");
  EXPECT_EQ(write({{"__metadata__", one}}),
            "tensors: the name '__metadata__', expected a tensor's name");
  EXPECT_EQ(write({{"a", TensorView()}}), "a.rank: 0, expected 1..6");
  EXPECT_EQ(write({{"a", TensorView::Dense(&x, DType::kF32, {-1})}}),
            "a.shape[0]: -1, expected >= 0 and at most 2^63 bytes in all");
  EXPECT_EQ(write({{"a", TensorView::Dense(&x, DType::kF32, {1}, {DeviceKind::kCuda, 0})}}),
            "a.device: not on the host");
  EXPECT_EQ(write({{"a", one}}, {{"k", "\xff"}}), "metadata: a name or text that is not UTF-8");
}

// Whatever is read back as a file after bytes were changed, each accepted tensor lies within the
// file, covers its shape, and no two overlap.
void CheckInvariants(std::span<const std::byte> bytes) {
  const Result<Safetensors> parsed = Safetensors::Parse(bytes);
  if (!parsed.ok()) {
    RC_ASSERT(!parsed.status().message().empty());
    return;
  }
  std::int64_t covered = 0;
  for (const TensorEntry& entry : parsed->tensors()) {
    std::int64_t size = StorageBytes(entry.dtype);
    for (const std::int64_t extent : entry.shape) size *= extent;
    RC_ASSERT(size == static_cast<std::int64_t>(entry.bytes.size()));
    RC_ASSERT(entry.bytes.data() >= bytes.data() + 8);
    RC_ASSERT(entry.bytes.data() + entry.bytes.size() <= bytes.data() + bytes.size());
    covered += size;
  }
  RC_ASSERT(covered < static_cast<std::int64_t>(bytes.size()));
}

TEST(Safetensors, MutatedFilesNeverBreakTheReader) {
  const std::string header =
      R"({"__metadata__":{"kvilt.version":"1"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}})";
  const std::vector<std::byte> good = FileOf(header, 28);
  // Characters that JSON cares about, so that many mutants get past the parser.
  constexpr std::string_view kJson = "0123456789,:[]{}\"-.eE \\u";
  EXPECT_TRUE(rc::check("mutated safetensors", [&](std::uint32_t seed) {
    std::mt19937 random(seed);
    for (int file = 0; file < 100; ++file) {
      std::vector<std::byte> bytes = good;
      for (auto changes = 1 + random() % 4; changes > 0; --changes) {
        const std::size_t at = random() % bytes.size();
        bytes[at] = static_cast<std::byte>(random() % 2 ? kJson[random() % kJson.size()]
                                                        : static_cast<char>(random()));
      }
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      CheckInvariants(bytes);
    }
  }));
}

}  // namespace
}  // namespace kvilt::core
