#include "src/core/printable.h"

#include <gtest/gtest.h>

namespace kvilt::core {
namespace {

TEST(Printable, ControlBytesAreSpeltAndTextStays) {
  EXPECT_EQ(Printable("decode kv=64"), "decode kv=64");
  EXPECT_EQ(Printable("\x1b[31mred\x07"), "\\x1B[31mred\\x07");
  EXPECT_EQ(Printable("a\tb\nc\x7f"), "a\\x09b\\x0Ac\\x7F");
  EXPECT_EQ(Printable("\u00fcber \u2026"), "\u00fcber \u2026");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xC2\\x9B31m");  // A C1 control in UTF-8.
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\\x9B31m");  // And as a byte.
  EXPECT_EQ(Printable("\xe2\x80"), "\\xE2\\x80");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdef", 5), "abcde...");
  EXPECT_EQ(Printable("ab\u2026", 4), "ab...");
}

}  // namespace
}  // namespace kvilt::core
