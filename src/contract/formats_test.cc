// Decoders and encoders against a reference that knows only ldexp and a sorted list of values.
#include "src/contract/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvilt::contract {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Magnitude of code `code` in a format with `man_bits` and `bias`, no special codes.
double ReferenceValue(int code, int man_bits, int bias) {
  const int exponent = code >> man_bits;
  const int mantissa = code & ((1 << man_bits) - 1);
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - man_bits);
  return std::ldexp((1 << man_bits) + mantissa, exponent - bias - man_bits);
}

struct Reference {
  int man_bits;
  int bias;
  int codes;  // Finite magnitudes are codes [0, codes).

  double Value(int code) const { return ReferenceValue(code, man_bits, bias); }

  // Nearest finite code of a magnitude, ties to the even code. `codes` when the magnitude rounds
  // beyond the largest finite value on the unbounded grid.
  int Nearest(double magnitude) const {
    int low = 0;
    int high = codes;  // Value(codes) is the next grid point, finite or not in the format.
    if (magnitude >= Value(codes)) return codes;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (Value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - Value(low);
    const double above = Value(high) - magnitude;
    if (below != above) return below < above ? low : high;
    return low % 2 == 0 ? low : high;
  }
};

constexpr Reference kE2M1{1, 1, 8};
constexpr Reference kE4M3{3, 7, 0x7F};
constexpr Reference kE5M2{2, 15, 0x7C};
constexpr Reference kF16{10, 15, 0x7C00};

// Every value, every midpoint, and the float neighbours of both.
std::vector<float> Probes(const Reference& format) {
  std::vector<float> probes;
  for (int code = 0; code < format.codes; ++code) {
    const double value = format.Value(code);
    const double middle = (value + format.Value(code + 1)) / 2;
    for (double at : {value, middle}) {
      const float x = static_cast<float>(at);
      EXPECT_EQ(static_cast<double>(x), at);
      for (float y : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) {
        probes.push_back(y);
        probes.push_back(-y);
      }
    }
  }
  for (float x : {1e-45f, 1e-40f, 1.17549435e-38f, 1e30f, std::numeric_limits<float>::max()}) {
    probes.push_back(x);
    probes.push_back(-x);
  }
  return probes;
}

std::vector<float> RandomBits(int count) {
  std::mt19937 random(7);
  std::vector<float> values;
  while (static_cast<int>(values.size()) < count) {
    const float x = BitsFloat(static_cast<u32>(random()));
    if (!std::isnan(x)) values.push_back(x);
  }
  return values;
}

template <class Check>
void ForProbes(const Reference& format, Check check) {
  for (float x : Probes(format)) check(x);
  for (float x : RandomBits(200000)) check(x);
}

u32 Sign(float x) { return std::signbit(x) ? 1u : 0u; }

TEST(Formats, E2M1DecodesAllSixteenCodes) {
  const float expected[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (u32 code = 0; code < 16; ++code) {
    const float value = DecodeE2M1(code);
    EXPECT_EQ(std::abs(value), expected[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(DecodeE2M1(code | 0xF0u), value) << "only the low four bits count";
    EXPECT_EQ(EncodeE2M1(value), code);
  }
}

TEST(Formats, E2M1RoundsToNearestTiesToEven) {
  ForProbes(kE2M1, [](float x) {
    const int code = std::min(kE2M1.Nearest(std::abs(static_cast<double>(x))), 7);
    ASSERT_EQ(EncodeE2M1(x), static_cast<u32>(code) | Sign(x) << 3) << x;
  });
  EXPECT_EQ(EncodeE2M1(kInf), 7u);
  EXPECT_EQ(EncodeE2M1(-kInf), 15u);
  EXPECT_EQ(EncodeE2M1(-0.0f), 8u);
  EXPECT_EQ(EncodeE2M1(kNan), 0u);
  EXPECT_EQ(EncodeE2M1(-kNan), 0u);
}

TEST(Formats, E4M3DecodesEveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = DecodeE4M3(static_cast<u8>(byte));
    if ((byte & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(std::abs(static_cast<double>(value)), kE4M3.Value(byte & 0x7F));
    EXPECT_EQ(std::signbit(value), byte >= 0x80);
    EXPECT_EQ(EncodeE4M3(value), byte);
  }
}

TEST(Formats, E5M2DecodesEveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = DecodeE5M2(static_cast<u8>(byte));
    const int code = byte & 0x7F;
    EXPECT_EQ(std::signbit(value), byte >= 0x80);
    if (code > 0x7C) {
      EXPECT_TRUE(std::isnan(value));
    } else if (code == 0x7C) {
      EXPECT_TRUE(std::isinf(value));
    } else {
      EXPECT_EQ(std::abs(static_cast<double>(value)), kE5M2.Value(code));
      EXPECT_EQ(EncodeE5M2(value), byte);
    }
  }
}

TEST(Formats, Fp8RoundsToNearestTiesToEvenAndSaturates) {
  ForProbes(kE4M3, [](float x) {
    const int code = std::min(kE4M3.Nearest(std::abs(static_cast<double>(x))), 0x7E);
    ASSERT_EQ(EncodeE4M3(x), static_cast<u32>(code) | Sign(x) << 7) << x;
    ASSERT_EQ(ClipsE4M3(x), std::abs(x) > 448.0f);
  });
  ForProbes(kE5M2, [](float x) {
    const int code = std::min(kE5M2.Nearest(std::abs(static_cast<double>(x))), 0x7B);
    ASSERT_EQ(EncodeE5M2(x), static_cast<u32>(code) | Sign(x) << 7) << x;
    ASSERT_EQ(ClipsE5M2(x), std::abs(x) > 57344.0f);
  });
}

TEST(Formats, P18_fp8_writer_saturates_and_keeps_nan) {
  const float inputs[] = {448.0f, 449.0f, 464.0f, 480.0f, 1e5f, kInf, -kInf};
  const float expected[] = {448.0f, 448.0f, 448.0f, 448.0f, 448.0f, 448.0f, -448.0f};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(DecodeE4M3(EncodeE4M3(inputs[i])), expected[i]);
  EXPECT_EQ(EncodeE4M3(kNan), 0x7F);
  EXPECT_EQ(EncodeE4M3(-kNan), 0x7F);
  EXPECT_EQ(EncodeE5M2(kNan), 0x7F);
  EXPECT_EQ(EncodeE5M2(-kNan), 0x7F);
  EXPECT_EQ(DecodeE5M2(EncodeE5M2(kInf)), 57344.0f);
  EXPECT_EQ(DecodeE5M2(EncodeE5M2(-1e30f)), -57344.0f);
  EXPECT_FALSE(ClipsE4M3(kNan));
  EXPECT_FALSE(ClipsE5M2(kNan));
  EXPECT_TRUE(ClipsE4M3(kInf));
}

TEST(Formats, F16RoundTripsAllBits) {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const float value = DecodeF16(static_cast<u16>(bits));
    const int code = static_cast<int>(bits & 0x7FFF);
    ASSERT_EQ(std::signbit(value), bits >= 0x8000);
    if (code > 0x7C00) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(EncodeF16(value), bits | 0x200) << "a NaN becomes quiet and keeps its payload";
      continue;
    }
    if (code == 0x7C00) {
      ASSERT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), kF16.Value(code));
    }
    ASSERT_EQ(EncodeF16(value), bits);
  }
}

TEST(Formats, F16RoundsToNearestTiesToEven) {
  ForProbes(kF16, [](float x) {
    const int code = kF16.Nearest(std::abs(static_cast<double>(x)));
    ASSERT_EQ(EncodeF16(x), static_cast<u32>(code) | Sign(x) << 15) << x;
  });
  EXPECT_EQ(EncodeF16(kInf), 0x7C00);
  EXPECT_EQ(EncodeF16(-kInf), 0xFC00);
  EXPECT_TRUE(std::isnan(DecodeF16(EncodeF16(BitsFloat(0x7F800001u)))));
}

TEST(Formats, BF16RoundTripsAllBits) {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const float value = DecodeBF16(static_cast<u16>(bits));
    if (std::isnan(value)) {
      ASSERT_EQ(EncodeBF16(value), bits | 0x40);
    } else {
      ASSERT_EQ(EncodeBF16(value), bits);
    }
  }
}

// Rounds to 8 significant bits (fewer below 2^-126) by scaling and nearbyint in double.
float ReferenceBF16(float x) {
  if (x == 0.0f || std::isinf(x)) return x;
  int exponent = 0;
  std::frexp(static_cast<double>(x), &exponent);
  const int unit = std::max(exponent - 8, -133);
  const double rounded =
      std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -unit)), unit);
  if (std::abs(rounded) >= std::ldexp(1.0, 128)) return std::copysign(kInf, x);
  return std::copysign(static_cast<float>(rounded), x);
}

TEST(Formats, BF16RoundsToNearestTiesToEven) {
  std::vector<float> probes = RandomBits(200000);
  for (u32 bits = 0; bits < 65536; ++bits) {
    for (u32 low : {0x7FFFu, 0x8000u, 0x8001u}) probes.push_back(BitsFloat(bits << 16 | low));
  }
  for (float x : probes) {
    if (std::isnan(x)) continue;
    ASSERT_EQ(FloatBits(DecodeBF16(EncodeBF16(x))), FloatBits(ReferenceBF16(x))) << x;
  }
  EXPECT_TRUE(std::isnan(DecodeBF16(EncodeBF16(BitsFloat(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(DecodeBF16(EncodeBF16(BitsFloat(0xFFFFFFFFu)))));
}

TEST(Formats, InputsBelowTheSmallestNormalCountAsZero) {
  EXPECT_EQ(FloatBits(FlushInput(std::numeric_limits<float>::denorm_min())), 0u);
  EXPECT_EQ(FloatBits(FlushInput(BitsFloat(0x007FFFFFu))), 0u);
  EXPECT_EQ(FloatBits(FlushInput(BitsFloat(0x807FFFFFu))), kF32SignBit);
  EXPECT_EQ(FloatBits(FlushInput(BitsFloat(0x00800000u))), 0x00800000u);
  EXPECT_EQ(FlushInput(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(FlushInput(kNan)));
}

TEST(Formats, StoredValueDividesByTheGlobal) {
  EXPECT_EQ(StoredValue(3.0f, 1.0f), 3.0f);
  EXPECT_EQ(StoredValue(1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(StoredValue(1e-40f, 1e-30f), 0.0f) << "the input is flushed before the division";
  EXPECT_EQ(StoredValue(1e-37f, 16.0f), 1e-37f / 16.0f) << "the quotient is not";
}

// The same text in a constant expression: compilers and NVRTC evaluate it alike.
static_assert(EncodeE4M3(DecodeE4M3(0x01)) == 0x01 && EncodeE5M2(DecodeE5M2(0x01)) == 0x01);
static_assert(EncodeF16(65519.0f) == 0x7BFF && EncodeF16(65520.0f) == 0x7C00);
static_assert(EncodeE2M1(2.5f) == 4 && EncodeE2M1(3.5f) == 6 && EncodeE2M1(5.0f) == 6);

}  // namespace
}  // namespace kvilt::contract
