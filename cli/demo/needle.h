// Where one query's attention goes, read off the kernel: beside the real K in some format, V is a
// bf16 cache whose rows are one-hot, so each output element is the mass of one bin of keys.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/demo/capture.h"
#include "cli/demo/paged_caches.h"

namespace kvilt::cli::demo {

struct NeedleView {
  std::int64_t bin_tokens = 0;
  std::vector<double> bins;  // Shares of the mass, keys [i * bin_tokens, (i + 1) * bin_tokens).
  double needle = 0;         // On the needle key alone; also counted in its bin.
};

// For the needle's query and head, with K kept as `format` says (its V dtypes are not used).
Result<NeedleView> LookAtNeedle(const Device& device, const Capture& capture, const Format& format);

}  // namespace kvilt::cli::demo
