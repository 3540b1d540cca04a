// A hash of content: the same on every machine and in every build, so that files may carry it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvilt::core {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend bool operator<(const Hash128& a, const Hash128& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
};

inline std::string Hex(Hash128 hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[hash.high >> (4 * i) & 15];
    text[31 - i] = kDigits[hash.low >> (4 * i) & 15];
  }
  return text;
}

// FNV-1a with 128 bits (Fowler, Noll, Vo). Tells accidents apart, not attackers.
class Hasher {
 public:
  Hasher& Add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) state_ = (state_ ^ std::to_integer<unsigned>(byte)) * kPrime;
    return *this;
  }
  Hasher& Add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) state_ = (state_ ^ (value >> (8 * i) & 255)) * kPrime;
    return *this;
  }
  // With its length, so that neighbours cannot trade characters.
  Hasher& Add(std::string_view text) {
    return Add(static_cast<std::uint64_t>(text.size())).Add(std::as_bytes(std::span(text)));
  }

  Hash128 value() const {
    return {static_cast<std::uint64_t>(state_ >> 64), static_cast<std::uint64_t>(state_)};
  }

 private:
  __extension__ using Word = unsigned __int128;
  static constexpr Word kPrime = (Word{1} << 88) + 0x13B;

  Word state_ = (Word{0x6C62272E07BB0142} << 64) + 0x62B821756295C58D;
};

}  // namespace kvilt::core
