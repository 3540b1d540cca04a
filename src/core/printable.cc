#include "src/core/printable.h"

#include <fmt/format.h>

namespace kvilt::core {
namespace {

// C0 controls and DEL.
bool IsControl(unsigned char byte) { return byte < 0x20 || byte == 0x7F; }

// Bytes of the UTF-8 character at the front of `text`; 0 when there is none, or when it is one of
// the C1 controls, which begin escape sequences too.
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return IsControl(lead) ? 0 : 1;
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return lead == 0xC2 && byte(1) < 0xA0 ? 0 : bytes;
}

}  // namespace

std::string Printable(std::string_view text, std::size_t limit) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = CharacterBytes(text.substr(at));
    if (at + (bytes == 0 ? 1 : bytes) > limit) return result + "...";
    if (bytes == 0) {
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at++]));
    } else {
      result += text.substr(at, bytes);
      at += bytes;
    }
  }
  return result;
}

}  // namespace kvilt::core
