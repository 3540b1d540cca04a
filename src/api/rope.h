// The rotation frequencies of in-kernel RoPE.
#pragma once

#include <vector>

#include "kvilt/request.h"

namespace kvilt::api {

// Elements that take part in pairs, r of the pairing formula: rotary_dim for kRotary (0 means
// head_dim), head_dim for kProportional, whose pairs from rotary_dim / 2 on have frequency zero.
int RotaryElements(const Rope& rope, int head_dim_qk);

// Radians per position of each pair, f64 [RotaryElements / 2], with `scale` and the Llama-3.1
// smoothing included (SEMANTICS section 3, "RoPE in the kernel"). With
//   f     = theta^(-2i / rotary_dim) (kRotary), theta^(-2i / head_dim) (kProportional)
//   waves = original_length * f / (2 pi), the turns of pair i over the original context:
// waves >= high_freq_factor keeps f; waves <= low_freq_factor gives f / scale; between them
// s = (waves - low) / (high - low) blends (1 - s) * f / scale + s * f.
// REQUIRES: a Rope that planning accepted for this head dim.
std::vector<double> RopeFrequencies(const Rope& rope, int head_dim_qk);

}  // namespace kvilt::api
