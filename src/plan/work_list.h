// Lays out what split_kv.h chose as the lists that backends walk (src/contract/work_item.h).
#pragma once

#include "src/plan/plan_data.h"
#include "src/plan/split_kv.h"

namespace kvilt::plan {

// Blocks with their splits and partial rows, spans, items in descending cost, merges, requests.
// The header gets everything but path and accuracy. Errors: lists too long for plan data.
Result<PlanLists> MakeWorkLists(const SplitContext& context, const KeyRuns& runs);

// What the lists amount to: counts, and the balance of a greedy schedule in list order.
SplitSummary Summarize(const PlanLists& lists, const SplitContext& context);

}  // namespace kvilt::plan
