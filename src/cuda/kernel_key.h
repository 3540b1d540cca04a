// What a compiled kernel is made from: the spec, the text it becomes, the options, and their hash.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/status.h"
#include "src/contract/tile_shape.h"
#include "src/core/hash.h"
#include "src/cuda/nvrtc.h"

namespace kvilt::cuda {

// One kernel. With entry "some_name" the header defines, in namespace kvilt::kernels,
//   struct SomeNameArgs;                          the one argument of the launch
//   void SomeName(const SomeNameArgs&)            the body, or, where `arguments` is not empty,
//   template <...> void SomeName(...)             a template of them
// and, where it uses dynamic shared memory, the macro KVILT_SMEM_BYTES(...): its bytes as a
// constant expression of the template's arguments, in that namespace.
struct KernelSpec {
  std::string entry;         // "attention"; the kernel is kvilt_attention
  std::string header;        // "attention.cuh"
  std::string arguments;     // C++ text of the template's arguments: TileText(tile), or empty
  int threads = 0;           // Of a block.
  int min_blocks = 1;        // Resident on an SM; both bound the registers.
  bool contract_fma = true;  // False: a * b + c is rounded twice, as the formats demand of writers.

  friend bool operator==(const KernelSpec&, const KernelSpec&) = default;
};

// "kvilt_attention"
std::string KernelName(const KernelSpec& spec);

// "kvilt::contract::TileShape{0,3,3,...}"
std::string TileText(const contract::TileShape& tile);

// "sm_90a": the arch with all of its own instructions where it has some, since a kernel is compiled
// for the machine it runs on.
std::string ArchName(int arch);

// The translation unit. Beside the kernel it exports kvilt_args_bytes and, where the header says
// it, kvilt_smem_bytes, so that launcher and tests can compare the cubin with the plan.
std::string KernelText(const KernelSpec& spec);

std::vector<std::string> CompileOptions(const KernelSpec& spec, int arch);

// The texts that `root` reaches by #include, in the order they are met.
// Errors: kRuntime (a text that is not among `sources`).
Result<std::vector<SourceText>> ReachableSources(std::span<const SourceText> sources,
                                                 std::string_view root);

// Hash of all that decides the cubin, but for the compiler's version.
core::Hash128 KernelKey(const KernelSpec& spec, int arch, std::span<const SourceText> reachable);

}  // namespace kvilt::cuda
