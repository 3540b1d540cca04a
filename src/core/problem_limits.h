// What BuildProblem and BuildProblemShape refuse before they allocate: problems that no memory
// holds, and words that would do nothing beside the others.
#pragma once

#include <cstdint>

#include "kvilt/status.h"
#include "src/core/problem.h"

namespace kvilt::core {

// Of a batch. Page tables and positions are there even of a problem that is only planned for, with
// some 30 bytes an entry while they are being made: 2 GB.
inline constexpr std::int64_t kMaxProblemKeys = std::int64_t{1} << 33;
inline constexpr std::int64_t kMaxProblemRows = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxTableEntries = std::int64_t{1} << 26;
inline constexpr std::int64_t kMaxMaskBits = std::int64_t{1} << 32;

// Errors: kInvalidArgument, naming the word, the value and the limit.
Status CheckProblemLimits(const Problem& problem);

// Whether caches, q and out fit in `available_bytes` (0 = unknown, everything fits).
// Errors: kResourceExhausted, with both numbers.
Status CheckProblemMemory(const Problem& problem, std::int64_t available_bytes);

}  // namespace kvilt::core
