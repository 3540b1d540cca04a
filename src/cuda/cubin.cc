#include "src/cuda/cubin.h"

#include <elf.h>

#include <charconv>
#include <cstring>

namespace kvilt::cuda {
namespace {

// The number that stands before `words` in a report; the largest where there are several.
int NumberBefore(std::string_view log, std::string_view words) {
  int largest = 0;
  for (std::size_t at = log.find(words); at != log.npos; at = log.find(words, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    int value = 0;
    std::from_chars(log.data() + begin, log.data() + at, value);
    largest = value > largest ? value : largest;
  }
  return largest;
}

// Reads of an ELF file that never leave it.
class ElfReader {
 public:
  explicit ElfReader(std::span<const std::byte> image) : image_(image) {}

  template <class T>
  std::optional<T> At(std::uint64_t offset) const {
    if (offset > image_.size() || image_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, image_.data() + offset, sizeof(T));
    return value;
  }

  // Empty where the file ends before the text does.
  std::string_view TextAt(std::uint64_t offset) const {
    if (offset >= image_.size()) return {};
    const char* begin = reinterpret_cast<const char*>(image_.data()) + offset;
    const void* end = std::memchr(begin, 0, image_.size() - offset);
    if (end == nullptr) return {};
    return {begin, static_cast<const char*>(end)};
  }

  std::optional<Elf64_Ehdr> Header() const {
    const auto header = At<Elf64_Ehdr>(0);
    const bool elf = header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                     header->e_ident[EI_CLASS] == ELFCLASS64 &&
                     header->e_shentsize == sizeof(Elf64_Shdr);
    return elf ? header : std::nullopt;
  }

  std::optional<Elf64_Shdr> Section(const Elf64_Ehdr& header, unsigned index) const {
    if (index >= header.e_shnum) return std::nullopt;
    return At<Elf64_Shdr>(header.e_shoff + index * sizeof(Elf64_Shdr));
  }

 private:
  std::span<const std::byte> image_;
};

}  // namespace

CubinStats ParseAssemblerLog(std::string_view log) {
  CubinStats stats;
  stats.registers = NumberBefore(log, " registers");
  stats.stack_bytes = NumberBefore(log, " bytes stack frame");
  stats.spill_bytes =
      NumberBefore(log, " bytes spill stores") + NumberBefore(log, " bytes spill loads");
  return stats;
}

Result<std::optional<int>> ReadCubinInt(std::span<const std::byte> image, std::string_view symbol) {
  const ElfReader elf(image);
  const Status broken = Status::Runtime("cubin", "not an ELF file that can be read");
  const auto header = elf.Header();
  if (!header) return broken;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto table = elf.Section(*header, i);
    if (!table) return broken;
    if (table->sh_type != SHT_SYMTAB) continue;
    const auto names = elf.Section(*header, table->sh_link);
    if (!names) return broken;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
      const auto entry = elf.At<Elf64_Sym>(table->sh_offset + at);
      if (!entry) return broken;
      if (elf.TextAt(names->sh_offset + entry->st_name) != symbol) continue;
      const auto section = elf.Section(*header, entry->st_shndx);
      if (!section) return broken;
      // A variable that begins as zero has no bytes in the file.
      if (section->sh_type == SHT_NOBITS) return std::optional<int>(0);
      const auto value = elf.At<int>(section->sh_offset + entry->st_value);
      if (!value) return broken;
      return value;
    }
  }
  return std::optional<int>();
}

}  // namespace kvilt::cuda
