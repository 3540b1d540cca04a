#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cli/options.h"

namespace kvilt::cli {
namespace {

TEST(Terminal, NoColorAndDumbTerminalsGetPlainText) {
  EXPECT_TRUE(WantsStyle(std::nullopt, "xterm"));
  EXPECT_TRUE(WantsStyle("", std::nullopt));
  EXPECT_FALSE(WantsStyle("1", "xterm"));
  EXPECT_FALSE(WantsStyle(std::nullopt, "dumb"));
  EXPECT_TRUE(TakesEscapes("xterm"));
  EXPECT_FALSE(TakesEscapes("dumb"));
}

TEST(Terminal, MessagesCannotDriveIt) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Fail("no file '\x1b[2J'\nexpected another", 2), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kvilt: no file '\\x1B[2J'\nexpected another\n");
}

TEST(Human, BytesInDecimalUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(37'748'736), "37.7 MB");
  EXPECT_EQ(HumanBytes(1'208'000'000), "1.21 GB");
  EXPECT_EQ(HumanBytes(999'600), "1.00 MB");  // Not "1000 kB".
}

TEST(Human, TimesWithThreeDigits) {
  EXPECT_EQ(HumanTime(0.85), "850 ns");
  EXPECT_EQ(HumanTime(12.34), "12.3 us");
  EXPECT_EQ(HumanTime(999.6), "1.00 ms");
  EXPECT_EQ(HumanTime(4560), "4.56 ms");
  EXPECT_EQ(HumanTime(1.2e6), "1.20 s");
}

TEST(Human, TokensNameOnlyExactPowers) {
  EXPECT_EQ(HumanTokens(131072), "128k");
  EXPECT_EQ(HumanTokens(1000), "1000");
  EXPECT_EQ(HumanTokens(1 << 20), "1M");
  EXPECT_EQ(HumanTokens(0), "0");
}

TEST(Human, NumbersAndErrors) {
  EXPECT_EQ(HumanNumber(0.0951), "0.0951");
  EXPECT_EQ(HumanNumber(131072), "131072");
  EXPECT_EQ(HumanNumber(15.04), "15.0");
  EXPECT_EQ(HumanNumber(1.2e-7), "1.2e-7");
  EXPECT_EQ(HumanNumber(0), "0");
  EXPECT_EQ(HumanError(7.31e-4), "7.3e-4");
  EXPECT_EQ(HumanError(2e-12), "2.0e-12");
  EXPECT_EQ(HumanError(0), "0");
  EXPECT_EQ(HumanError(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Table, ColumnsLineUp) {
  Table table({"cache", "bytes"});
  table.Add({"bf16", "768"});
  table.Add({"NVFP4 4/6", "216"});
  EXPECT_EQ(table.Render(),
            "  cache      bytes\n"
            "  ---------  -----\n"
            "  bf16         768\n"
            "  NVFP4 4/6    216\n");
}

TEST(Table, CountsCodePointsAndPadsShortRows) {
  Table table({"a", "b"}, {0, 1});
  table.Add({"\u00b5s"});
  table.Add({"xyz", "1"});
  EXPECT_EQ(table.Render(0), "a    b\n---  -\n\u00b5s\nxyz  1\n");
}

TEST(Nearest, FindsSlipsAndNothingElse) {
  const std::vector<std::string> names = {"bench", "check", "demo", "info"};
  EXPECT_EQ(Nearest("bnech", names), "bench");
  EXPECT_EQ(Nearest("chek", names), "check");
  EXPECT_EQ(Nearest("something", names), "");
}

}  // namespace
}  // namespace kvilt::cli
