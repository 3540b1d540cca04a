#include "src/core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "src/core/env.h"

namespace kvilt::core {
namespace {

TEST(Env, ReadsWhatIsSet) {
  ASSERT_EQ(setenv("KVILT_LOG", "info", 1), 0);
  EXPECT_EQ(ReadEnv(EnvVariable::kLog), "info");
  ASSERT_EQ(unsetenv("KVILT_LOG"), 0);
  EXPECT_FALSE(ReadEnv(EnvVariable::kLog).has_value());
}

TEST(Log, LevelsByName) {
  EXPECT_EQ(ParseLogLevel("info"), true);
  EXPECT_EQ(ParseLogLevel("off"), false);
  EXPECT_EQ(ParseLogLevel(""), false);
  EXPECT_FALSE(ParseLogLevel("INFO").has_value());
}

TEST(Log, ALineIsWholeAndNamed) {
  testing::internal::CaptureStderr();
  LogLine("a device opened");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "kvilt: a device opened\n");
}

}  // namespace
}  // namespace kvilt::core
