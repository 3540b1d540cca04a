#include "kvilt/status.h"

#include <gtest/gtest.h>

#include "kvilt/dtype.h"

namespace kvilt {
namespace {

TEST(Status, OkIsTheDefaultAndCarriesNothing) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
}

TEST(Status, MessageBeginsWithTheField) {
  Status status = Status::Invalid("segments[0].k.data", "rank 3, expected 4");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "segments[0].k.data");
  EXPECT_EQ(status.message(), "segments[0].k.data: rank 3, expected 4");
}

TEST(ResultDeathTest, ValueOfAnErrorPrintsTheStatus) {
  Result<int> result = Status::Invalid("page_size", "0, expected >= 1");
  EXPECT_DEATH(static_cast<void>(result.value()), "page_size: 0, expected >= 1");
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kI64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(Name(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("fp8"), DType::kE4M3);
  EXPECT_EQ(ParseDType("int4"), std::nullopt);
}

}  // namespace
}  // namespace kvilt
