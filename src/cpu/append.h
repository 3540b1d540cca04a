// The writers: new tokens into a cache. SEMANTICS section 1, "The writers, exactly".
#pragma once

#include "kvilt/attention.h"
#include "src/contract/append_params.h"
#include "src/cpu/worker_pool.h"

namespace kvilt::cpu {

struct AppendHealth {
  HealthCounters k;
  HealthCounters v;
};

void AddHealth(const HealthCounters& from, HealthCounters& to);

// Writes every token whose slot is not -1. Bits and counts do not depend on the number of threads
// or on the caller's FTZ/DAZ mode. A skipped token counts once on each side.
// REQUIRES: params checked (src/api/append.cc), the sources apart from the cache.
AppendHealth Append(const contract::AppendParams& params, WorkerPool& pool);

}  // namespace kvilt::cpu
