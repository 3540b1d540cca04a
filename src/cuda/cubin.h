// A compiled kernel with what the assembler said of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/status.h"

namespace kvilt::cuda {

struct CubinStats {
  int registers = 0;    // Per thread.
  int spill_bytes = 0;  // Stores and loads, per thread.
  int stack_bytes = 0;  // Per thread.
  int args_bytes = 0;   // sizeof of the kernel's argument.
  int smem_bytes = 0;   // Dynamic shared memory of a block, as the kernel counts it.
  double compile_seconds = 0;

  friend bool operator==(const CubinStats&, const CubinStats&) = default;
};

struct Cubin {
  CubinStats stats;
  std::string log;  // The compiler's and the assembler's.
  std::vector<std::byte> image;

  friend bool operator==(const Cubin&, const Cubin&) = default;
};

// What the assembler's report (ptxas -v) says of the one kernel in it: registers, spills, stack.
CubinStats ParseAssemblerLog(std::string_view log);

// The initial value of a global variable of type int in a cubin; nothing when it has no such
// symbol. Errors: kRuntime (not an ELF file that can be read).
Result<std::optional<int>> ReadCubinInt(std::span<const std::byte> image, std::string_view symbol);

}  // namespace kvilt::cuda
