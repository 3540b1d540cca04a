// The verbs: plan, prepare, run, merge, append, dequantize.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kvilt/device.h"
#include "kvilt/kv_cache.h"
#include "kvilt/plan.h"
#include "kvilt/request.h"
#include "kvilt/status.h"

namespace kvilt {

// ---------------------------------------------------------------- attention

// Decides everything, touches nothing: a pure function of its arguments and of the host arrays
// they point to (indptr, lengths, host page tables, host globals). Thread-safe.
// Errors: kInvalidArgument names the operand, field, value and what is accepted; kUnsupported names
// an option that the path cannot honour; kResourceExhausted gives the bytes kFixed would need.
Result<Plan> MakePlan(const AttentionRequest& request, const DeviceSpec& spec,
                      const PlanOptions& options = {});

// Bytes that suffice for every request within the capacity, planned with these options: MakePlan
// never answers with a larger workspace_bytes, and in kAuto a plan whose workspace_limit_bytes is
// this number loses no split to the limit. An upper bound; the need of one request is its
// plan's workspace_bytes. A plan made with PlanOptions::capacity has exactly this workspace_bytes.
// Pure and thread-safe.
// Errors: kInvalidArgument names the field; kResourceExhausted when the bytes leave 64 bits.
Result<std::int64_t> WorkspaceBytes(const PlanCapacity& capacity, const DeviceSpec& spec,
                                    const PlanOptions& options = {});

// A plan placed on a device: kernels compiled, plan data uploaded, an error word of its own.
// Movable handle; copies share state. Run from several threads is allowed (each with its own
// workspace and outputs).
class PreparedPlan {
 public:
  const Plan& plan() const;
  const Device& device() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }  // For the library itself.
  explicit PreparedPlan(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// Errors: kFailedPrecondition when the plan was made for another device; kInvalidArgument when
// plan.data is not as MakePlan made it; kRuntime.
Result<PreparedPlan> Prepare(const Device& device, Plan plan);

// Runs the plan on operands that match it (same dtypes, shapes, strides, alignment, lengths and
// options; pointers and values are free). Writes every element of out and lse of the batch's rows,
// and nothing else. `workspace`: at least plan().workspace_bytes at an address aligned to 256;
// its contents need no preparation; one workspace per run in flight. No allocation once warm.
// On the CPU the call returns when the result is there, and reports what a page table turned out to
// hold (an id outside [0, pages) is treated as an absent page and reported, never read).
Status Run(const PreparedPlan& prepared, const AttentionRequest& request,
           std::span<std::byte> workspace, Stream stream = {});

// The first error that a run of this plan found on the device since the last call; clears it.
Status LastError(const PreparedPlan& prepared);

// Re-plans in place for a request with other lengths; options, heads, dims and dtypes must be the
// same. Later Runs follow the new lengths. Path, tiles and launches stay. Without a capacity the
// new plan may need a larger workspace; with PlanOptions::capacity workspace and plan data keep
// their sizes, and lengths beyond it are refused (kResourceExhausted). On an error the plan is as
// it was. Once warm no allocation. Not concurrent with Run on the same PreparedPlan.
Status UpdatePlan(const PreparedPlan& prepared, const AttentionRequest& request,
                  Stream stream = {});

// ---------------------------------------------------------------- merge

// Attention results of the same queries over disjoint keys.
struct AttentionState {
  TensorView out;  // kF32, kBF16 or kF16 [rows, heads, head_dim], innermost stride 1.
  TensorView lse;  // kF32 [rows, heads].
  LseBase lse_base = LseBase::kNatural;
  bool has_sink = false;  // The lse already counts a sink.
};

// result = the attention over the union of the keys. With m = max lse, w_i = b^(lse_i - m):
// out = sum w_i out_i / sum w_i, lse = m + log_b(sum w_i). A state with lse = -inf is never read;
// all empty gives (0, -inf). Fixed order, so deterministic. result may be one of the states, but
// must not partly overlap any. Errors: no states, different bases or shapes, two states that both
// hold a sink (the denominator would count it twice). result.has_sink must say what the states say.
Status MergeStates(const Device& device, std::span<const AttentionState> states,
                   const AttentionState& result, Stream stream = {});

// ---------------------------------------------------------------- append, dequantize

// What the writers met; counts of elements or of 16-element blocks. SEMANTICS section 1.
struct HealthCounters {
  std::int64_t nan = 0;       // Elements that were NaN.
  std::int64_t infinite = 0;  // Elements that were infinite.
  // fp8: elements beyond the largest finite value, infinities included. NVFP4: blocks with
  // a / (6 g) > 448 (a / (4 g) where four_over_six kept that candidate).
  std::int64_t saturated = 0;
  std::int64_t flushed_blocks = 0;  // NVFP4: blocks with a > 0 whose scale became 0.
  std::int64_t skipped = 0;         // Slots of -1.

  friend bool operator==(const HealthCounters&, const HealthCounters&) = default;
};

// Writes new tokens into a paged or ragged cache. `k` and `v` are [n, kv_heads, head_dim] in kF32,
// kBF16 or kF16, innermost stride 1; each side converts to its own cache dtype.
struct AppendRequest {
  TensorView k;
  TensorView v;
  Segment cache;  // Private; for `slots` only its sides are read, not its table.
  // By page table: rows [token_indptr[r], token_indptr[r+1]) of k and v become positions
  // [kv_len - n_r, kv_len) of request r, where kv_len already counts them.
  // Starts at 0, never decreases, ends at <= n; rows beyond its end are not read.
  IndexArray token_indptr;  // Host, [batch + 1].
  // By slot instead: token i goes to slot page * page_size + entry (ragged: the row of the total
  // axis); -1 = skip. Any other value out of range, or a slot given twice, is refused.
  IndexArray slots;            // [n]
  bool four_over_six = false;  // NVFP4: also try amax / 4 per block, keep the smaller error.
};

// No cache tensor may overlap itself, another operand or an index array. Errors leave the cache
// unchanged. `k_health`, `v_health` may be null; they are added to.
Status AppendKv(const Device& device, const AppendRequest& request,
                HealthCounters* k_health = nullptr, HealthCounters* v_health = nullptr,
                Stream stream = {});

// Gathers the cache's tokens into dense rows: request r's tokens in order, requests one after
// another; out_k and out_v (each optional) are kF32, kBF16 or kF16 [sum kv_len, kv_heads,
// head_dim]. Exactly RNE_out((code * scale) * global), each product rounded to f32.
Status DequantizeKv(const Device& device, const Segment& cache, const TensorView& out_k,
                    const TensorView& out_v, Stream stream = {});

}  // namespace kvilt
