#include "src/core/problem_limits.h"

#include <gtest/gtest.h>

#include "src/core/problem_data.h"

namespace kvilt::core {
namespace {

Problem Parse(std::string_view text) { return ParseProblem(text).value(); }

std::string ShapeError(std::string_view text) {
  const auto shape = BuildProblemShape(Parse(text));
  return shape.ok() ? "" : shape.status().message();
}

TEST(ProblemLimits, TablesThatNoPlanNeedsAreRefusedAtOnce) {
  constexpr const char* kExpected =
      "page=16: page tables of 536870912 entries, expected at most 67108864: larger pages, fewer "
      "keys or cache=ragged";
  EXPECT_EQ(ShapeError("decode kv=8192m index=i64"), kExpected);
  EXPECT_EQ(ShapeError("decode b=1048576 kv=8192"), kExpected);
  EXPECT_NE(ShapeError("decode kv=64m,1023x16 table=padded"), "");
  EXPECT_NE(ShapeError("decode kv=2048m index=i64 segments=rest:page=8,1024m:page=16"), "");
  EXPECT_EQ(ShapeError("decode kv=8192m page=4096 index=i64"), "");
  EXPECT_EQ(ShapeError("decode kv=8192m cache=ragged index=i64"), "");
  EXPECT_EQ(ShapeError("decode kv=8192m cache=ragged index=i64 key_positions=offset:1"),
            "kv with key_positions: expected at most 67108864 in a batch");
  EXPECT_EQ(ShapeError("decode kv=16384m page=4096"), "kv: expected at most 8589934592 in a batch");
}

TEST(ProblemLimits, ValuesThatAnIndexArrayCannotHoldAreRefused) {
  EXPECT_EQ(ShapeError("decode kv=8192m page=4096"),
            "index=i32: lengths or positions up to 8589934592, expected index=i64 for them");
  EXPECT_EQ(ShapeError("decode kv=2047m page=4096"), "");
  EXPECT_NE(ShapeError("decode b=3 kv=1024m page=4096 cache=ragged"), "");
  EXPECT_EQ(ShapeError("decode b=3 kv=1024m page=4096"), "");
  EXPECT_NE(ShapeError("decode kv=64 key_positions=offset:2047m q_positions=offset:2048m"), "");
  EXPECT_EQ(ShapeError("decode kv=64 key_positions=offset:1000"), "");
}

TEST(ProblemLimits, MasksOfTooManyBitsAreRefusedAtOnce) {
  EXPECT_EQ(ShapeError("prefill q=128k kv=128k mask=custom"),
            "mask: 1.72e+10 mask bits, expected at most 4294967296 in a batch");
}

TEST(ProblemLimits, WordsThatWouldDoNothingAreRefused) {
  EXPECT_EQ(ShapeError("decode mask_indptr"),
            "mask_indptr: would do nothing: expected mask=custom or mask=tree, the masks that have "
            "bits");
  EXPECT_EQ(ShapeError("verify mask=tree mask_indptr"), "");
  EXPECT_EQ(ShapeError("decode lengths=last_page_len table=padded"),
            "lengths=last_page_len: would do nothing beside table=padded: expected table=csr");
}

TEST(ProblemLimits, OperandsBeyondTheMemoryAreRefusedWithBothNumbers) {
  const Problem problem = Parse("decode b=64 kv=1048576 heads=32/8 d=128");
  const Status status = CheckProblemMemory(problem, std::int64_t{24} << 30);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "problem: caches, q and out need 275 GB of memory, this machine has 25.8 GB to spare");
  EXPECT_TRUE(CheckProblemMemory(problem, 0).ok());
  EXPECT_TRUE(CheckProblemMemory(problem, std::int64_t{300} << 30).ok());
  EXPECT_TRUE(
      CheckProblemMemory(Parse("decode kv=1k heads=1/1 d=64 kv_dtype=nvfp4"), 80 << 10).ok());
  EXPECT_FALSE(
      CheckProblemMemory(Parse("decode kv=1k heads=1/1 d=64 kv_dtype=nvfp4"), 70 << 10).ok());
}

TEST(ProblemLimits, DataThatNoMachineHoldsIsRefusedBeforeItIsMade) {
  const auto data = BuildProblem(Parse("decode b=1024 kv=8m page=1024 heads=64/64 d=512"));
  ASSERT_FALSE(data.ok());  // 1.1 PB
  EXPECT_EQ(data.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvilt::core
