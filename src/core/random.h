// Counter-based random numbers: a value is a hash of what it belongs to, so data can be generated
// in any order, in parts, or again, and always be the same.
#pragma once

#include <cstdint>

namespace kvilt::core {

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit.
constexpr std::uint64_t MixBits(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t HashOf() { return 0; }
template <class First, class... Rest>
constexpr std::uint64_t HashOf(First first, Rest... rest) {
  return MixBits(static_cast<std::uint64_t>(first) ^ MixBits(HashOf(rest...)));
}

// splitmix64. Not for secrets.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t Next() { return MixBits(state_ += 0x9E3779B97F4A7C15u); }
  // Uniform in [0, n), n >= 1. The bias of n / 2^64 does not matter here.
  constexpr std::int64_t Below(std::int64_t n) {
    return static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(n));
  }
  constexpr bool OneIn(std::int64_t n) { return Below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace kvilt::core
