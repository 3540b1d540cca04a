#include "src/cpu/rope_angles.h"

#include <cmath>

namespace kvilt::cpu {
namespace {

// a * b of unit complex numbers, [cosines, sines].
void Multiply(const double* a, const double* b, int pairs, double* product) {
  for (int i = 0; i < pairs; ++i) {
    const double cosine = a[i] * b[i] - a[pairs + i] * b[pairs + i];
    const double sine = a[i] * b[pairs + i] + a[pairs + i] * b[i];
    product[i] = cosine;
    product[pairs + i] = sine;
  }
}

void Exact(const double* frequencies, double position, int pairs, double* angles) {
  for (int i = 0; i < pairs; ++i) {
    angles[i] = std::cos(frequencies[i] * position);
    angles[pairs + i] = std::sin(frequencies[i] * position);
  }
}

// table[d] for d in [0, 64): powers of table[1], each by at most 10 products.
void Powers(const double* frequencies, double unit, int pairs, double* table) {
  Exact(frequencies, 0.0, pairs, table);
  Exact(frequencies, unit, pairs, table + 2 * pairs);
  for (int digit = 2; digit < RopeAngles::kRadix; ++digit) {
    const double* half = table + digit / 2 * 2 * pairs;
    const double* other = table + (digit - digit / 2) * 2 * pairs;
    Multiply(half, other, pairs, table + digit * 2 * pairs);
  }
}

}  // namespace

RopeAngles::RopeAngles(const contract::RopeParams& rope, AlignedBuffer& buffer)
    : frequencies_(rope.frequencies), pairs_(rope.rotary_dim / 2) {
  const i64 doubles = kRadix * 2 * pairs_;
  low_ = reinterpret_cast<double*>(buffer.Reserve(2 * doubles * i64{sizeof(double)}));
  middle_ = low_ + doubles;
  Powers(frequencies_, 1.0, pairs_, low_);
  Powers(frequencies_, static_cast<double>(kRadix), pairs_, middle_);
}

RopeAngles::Cursor::Cursor(const RopeAngles& angles, double* memory)
    : angles_(&angles), rest_angles_(memory), base_(memory + 2 * angles.pairs_) {}

void RopeAngles::Cursor::Fill(const AttentionBody& body, i64 position, float* cosines,
                              float* sines) {
  const int pairs = angles_->pairs_;
  const i64 low = position & (kRadix - 1);  // Floor, for negative positions too.
  const i64 high = (position - low) / kRadix;
  const i64 middle = high & (kRadix - 1);
  const i64 rest = (high - middle) / kRadix;
  if (!valid_ || rest != rest_ || middle != middle_) {
    if (!valid_ || rest != rest_) {
      Exact(angles_->frequencies_, static_cast<double>(rest * kRadix * kRadix), pairs,
            rest_angles_);
    }
    Multiply(rest_angles_, angles_->middle(middle), pairs, base_);
    valid_ = true;
    rest_ = rest;
    middle_ = middle;
  }
  body.multiply_angles(base_, angles_->low(low), pairs, cosines, sines);
}

}  // namespace kvilt::cpu
