// Tokens of a cache as slots: page * page_size + entry; in a ragged cache the row of the total
// axis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/contract/attention_params.h"

namespace kvilt::api {

// Appends the slots of tokens [begin, end) of table row `row`. REQUIRES: a checked host table that
// has those tokens.
void PushSlots(const contract::SegmentParams& segment, std::int64_t row, std::int64_t begin,
               std::int64_t end, std::vector<contract::i64>& slots);

struct SlotPair {
  std::int64_t first = -1;  // Places in the list; -1: there is none.
  std::int64_t second = -1;
};

// Two places that name the same slot, negative slots aside. Sorts only when it must.
SlotPair FindDuplicate(std::span<const contract::i64> slots);

}  // namespace kvilt::api
