// The launches of a GPU plan in words.
#pragma once

#include "kvilt/plan.h"
#include "src/plan/explain_text.h"

namespace kvilt::plan::cuda {

// A line or two for each launch: tile, time.
void AddLaunchSummary(const Plan& plan, ExplainText& text);

// Also why: warps, shared memory, work, time by resource, and the tiles passed over.
void AddLaunchReasons(const Plan& plan, ExplainText& text);

}  // namespace kvilt::plan::cuda
