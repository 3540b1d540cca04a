// What a query row is: its values, position, visible keys, score modifications. SEMANTICS 3.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/request.h"

namespace kvilt::oracle {

struct Lengths {
  std::int64_t request = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t keys_before = 0;  // Keys of the requests before this one.
  std::int64_t mask_byte = 0;    // First byte of its mask bits.
  std::int64_t delta() const { return kv_len - q_len; }
};

// The row of q as stored (q_scale is part of the score scale, not of this).
std::vector<double> QueryRow(const AttentionRequest& request, std::int64_t row, std::int64_t head);

// p_i of row i: i + delta, or the caller's.
std::int64_t RowPosition(const AttentionRequest& request, const Lengths& lengths, std::int64_t i);
std::int64_t KeyPosition(const AttentionRequest& request, const Lengths& lengths, std::int64_t j);

bool Sees(const AttentionRequest& request, const Lengths& lengths, std::int64_t i, std::int64_t j);

// Natural units, from the plain dot product to what enters the softmax.
double Score(const AttentionRequest& request, const Lengths& lengths, std::int64_t head,
             std::int64_t i, std::int64_t j, double dot);

// Radians per position of each pair that rotates together; empty without request.rope.
std::vector<double> Frequencies(const AttentionRequest& request);
// Rotates a row in place to `position`; `frequencies` of Frequencies.
void Rotate(const AttentionRequest& request, const std::vector<double>& frequencies,
            std::int64_t position, std::vector<double>& row);

// Elements of one head's query row.
std::int64_t QueryHeadDim(const AttentionRequest& request);

}  // namespace kvilt::oracle
