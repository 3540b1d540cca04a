// Lays out what split_kv.h chose as the lists that backends walk (src/contract/work_item.h).
#pragma once

#include <vector>

#include "src/plan/plan_data.h"
#include "src/plan/split_kv.h"

namespace kvilt::plan {

// Memory of MakeWorkLists, kept to be used again.
struct WorkListScratch {
  std::vector<RunMember> members;
  std::vector<std::int64_t> borders;  // Of each run, one after another.
  std::vector<std::int64_t> borders_begin;
  std::vector<std::int64_t> block_splits;
  std::vector<std::int64_t> cuts;
  std::vector<double> free_at;  // A heap.
};

// Blocks with their splits and partials, spans, items in descending cost, merges, requests. The
// header gets everything but path and accuracy. Replaces `lists`, whose memory is used again.
// Errors: lists too long for plan data.
Status MakeWorkLists(const SplitContext& context, const KeyRuns& runs, WorkListScratch& scratch,
                     PlanLists& lists);

// What the lists amount to: counts, and the balance of a greedy schedule in list order.
SplitSummary Summarize(const PlanLists& lists, const SplitContext& context,
                       WorkListScratch& scratch);

// --- Parts that GPU plans share. ---

// Lists too long for plan data name what the user can change.
Status CheckListCounts(double most, const PlanOptions& options);
// `requests`: of the whole batch.
void WriteRequests(const RequestGeometry& geometry, contract::RequestInfo* requests);
void FillHeader(const RequestGeometry& geometry, contract::PlanHeader& header);

}  // namespace kvilt::plan
