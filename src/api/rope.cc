#include "src/api/rope.h"

#include <cmath>
#include <numbers>

namespace kvilt::api {
namespace {

double Smooth(const Rope& rope, double frequency) {
  const double slowed = frequency / rope.scale;
  if (!rope.llama31) return slowed;
  const Rope::Llama31& llama = *rope.llama31;
  const double waves = llama.original_length * frequency / (2.0 * std::numbers::pi);
  if (waves >= llama.high_freq_factor) return frequency;
  if (waves <= llama.low_freq_factor) return slowed;
  const double share =
      (waves - llama.low_freq_factor) / (llama.high_freq_factor - llama.low_freq_factor);
  return (1.0 - share) * slowed + share * frequency;
}

}  // namespace

int RotaryElements(const Rope& rope, int head_dim_qk) {
  const bool whole = rope.rotary_dim == 0 || rope.frequency == RopeFrequency::kProportional;
  return whole ? head_dim_qk : rope.rotary_dim;
}

std::vector<double> RopeFrequencies(const Rope& rope, int head_dim_qk) {
  const int rotary_dim = rope.rotary_dim == 0 ? head_dim_qk : rope.rotary_dim;
  const int divisor = rope.frequency == RopeFrequency::kRotary ? rotary_dim : head_dim_qk;
  std::vector<double> frequencies(static_cast<std::size_t>(RotaryElements(rope, head_dim_qk) / 2),
                                  0.0);
  for (int pair = 0; pair < rotary_dim / 2; ++pair) {
    const double frequency = std::pow(rope.theta, -2.0 * pair / divisor);
    frequencies[static_cast<std::size_t>(pair)] = Smooth(rope, frequency);
  }
  return frequencies;
}

}  // namespace kvilt::api
