// Part (b): decode time with split off and auto, and pictures of a mixed batch's plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/demo/judge.h"
#include "cli/demo/paged_caches.h"
#include "cli/demo/parts.h"
#include "cli/terminal.h"
#include "src/core/check.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"

namespace kvilt::cli::demo {
namespace {

constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kOtherThreads = 16;
constexpr const char* kMixedBatch =
    "decode kv=65536,16384,8192,4096,1024 heads=9/3 d=64 kv_dtype=nvfp4";
constexpr std::array<std::int64_t, 2> kOneRow = {0, 1};

Result<ContextResult> RunContext(const Device& device, const Capture& capture, const Format& format,
                                 std::int64_t tokens, const Effort& effort) {
  const std::int64_t repeats = std::max<std::int64_t>(1, tokens / capture.tokens());
  Result<StoredContext> context =
      Store(device, format, capture.k(), capture.v(), kPageSize, repeats);
  if (!context.ok()) return context.status();
  AttentionRequest request = capture.query.request;
  request.q = Tokens(request.q, capture.queries() - 1, 1);
  request.q_indptr = std::span<const std::int64_t>(kOneRow);
  request.q_positions = {};  // The end of the tiled context.
  request.segments = context->Segments();

  PlanOptions off;
  off.split = SplitMode::kOff;
  const Result<Call> whole = Call::Make(device, request, off);
  if (!whole.ok()) return whole.status();
  const Result<Call> split = Call::Make(device, request);
  if (!split.ok()) return split.status();
  const Result<double> off_us = whole->MedianUs(effort.min_runs, effort.seconds);
  if (!off_us.ok()) return off_us.status();
  const Result<double> auto_us = split->MedianUs(effort.min_runs, effort.seconds);
  if (!auto_us.ok()) return auto_us.status();

  ContextResult result;
  result.tokens = context->tokens;
  result.off_us = *off_us;
  result.auto_us = *auto_us;
  result.items_off = whole->plan().split.items;
  result.items = split->plan().split.items;
  result.max_splits = split->plan().split.max_splits;
  const oracle::Reference reference = oracle::Attention(split->request());
  ErrorSums error, difference;
  error.AddError(reference, *split);
  difference.AddDifference(reference, *split, *whole);
  result.error = error.value();
  result.difference = difference.value();
  return result;
}

PlanResult DrawPlan(const Plan& plan, const std::string& problem) {
  PlanResult result;
  result.problem = problem;
  result.kv_heads = plan.kv_heads;
  result.threads = plan.spec.slots;
  result.split = plan.split;
  for (std::size_t r = 0; r < plan.kv_len.size(); ++r) {
    result.rows.push_back({fmt::format("request {}", r), plan.kv_len[r], {}});
  }
  std::vector<report::WorkBlock> blocks;
  for (const WorkItemInfo& item : WorkItems(plan)) {
    const auto row = static_cast<std::size_t>(item.request);
    result.rows[row].items.push_back(
        {item.item, item.head_begin, item.head_end, item.key_begin, item.key_end});
    const auto cost =
        static_cast<double>((item.key_end - item.key_begin) * (item.head_end - item.head_begin) *
                            (item.row_end - item.row_begin));
    if (!blocks.empty() && blocks.back().item == item.item) {
      blocks.back().cost += cost;  // One item that serves several row blocks or requests.
    } else {
      blocks.push_back({row, item.item, cost});
    }
  }
  for (report::WorkRow& row : result.rows) {
    std::sort(row.items.begin(), row.items.end(),
              [](const report::WorkRect& a, const report::WorkRect& b) {
                return std::pair(a.head_begin, a.key_begin) < std::pair(b.head_begin, b.key_begin);
              });
  }
  result.lanes = report::AssignToLanes(blocks, std::max(1, plan.spec.slots));
  return result;
}

}  // namespace

Result<DecodeResult> RunDecode(const Device& device, const Capture& capture, const Effort& effort,
                               const Stage& stage) {
  const Format format{"NVFP4", "", {{-1, DType::kNVFP4, DType::kNVFP4}}, false};
  DecodeResult result;
  result.format = format.name;
  for (std::int64_t tokens : effort.contexts) {
    stage(fmt::format("decode over {} tokens", HumanTokens(tokens)));
    Result<ContextResult> context = RunContext(device, capture, format, tokens, effort);
    if (!context.ok()) return context.status();
    result.contexts.push_back(std::move(context).value());
  }
  return result;
}

Result<std::vector<PlanResult>> RunPlans(const DeviceSpec& spec) {
  const Result<core::Problem> problem = core::ParseProblem(kMixedBatch);
  if (!problem.ok()) return problem.status();
  const Result<core::ProblemData> data = core::BuildProblemShape(*problem);
  if (!data.ok()) return data.status();
  std::vector<PlanResult> results;
  DeviceSpec other = spec;
  other.slots = kOtherThreads;
  for (const DeviceSpec& device : {spec, other}) {
    const Result<Plan> plan = MakePlan(data->request(), device, data->plan_options());
    if (!plan.ok()) return plan.status();
    results.push_back(DrawPlan(*plan, kMixedBatch));
    if (spec.slots == kOtherThreads) break;
  }
  return results;
}

}  // namespace kvilt::cli::demo
