// MergeStates: checks the states against each other, then merges.
#include "src/cpu/merge_states.h"

#include <fmt/format.h>

#include <vector>

#include "kvilt/attention.h"
#include "src/api/bind_rows.h"
#include "src/api/check_apart.h"
#include "src/api/check_stream.h"
#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/core/check.h"
#include "src/plan/tensor_check.h"

namespace kvilt {
namespace {

constexpr DeviceKind kDevice = DeviceKind::kCpu;

std::string_view BaseName(LseBase base) {
  return base == LseBase::kTwo ? "kTwo" : base == LseBase::kNatural ? "kNatural" : "neither base";
}

// The same view of the same memory; strides of axes with one entry do not matter.
bool SameView(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int dim = 0; dim < a.rank; ++dim) {
    if (a.shape[dim] != b.shape[dim]) return false;
    if (a.shape[dim] > 1 && a.stride[dim] != b.stride[dim]) return false;
  }
  return true;
}

// Checks one state alone and against the shape and base of the first.
Status CheckState(const AttentionState& state, const AttentionState& first, std::string_view name) {
  const plan::FieldPath out{name, "out"};
  const plan::FieldPath lse{name, "lse"};
  if (state.out.defined()) {
    KVILT_RETURN_IF_ERROR(
        plan::CheckDType(state.out, {DType::kF32, DType::kBF16, DType::kF16}, out));
  }
  plan::TensorRule rule{3, {}, {"rows", "heads", "head_dim"}};
  for (int dim = 0; dim < 3; ++dim) {
    rule.shape[dim] = &state == &first ? plan::kAnyExtent : first.out.shape[dim];
  }
  KVILT_RETURN_IF_ERROR(plan::CheckTensor(state.out, rule, kDevice, out));
  if (state.lse.defined()) KVILT_RETURN_IF_ERROR(plan::CheckDType(state.lse, {DType::kF32}, lse));
  const plan::TensorRule lse_rule{
      2, {state.out.shape[0], state.out.shape[1]}, {"rows", "heads"}, false};
  KVILT_RETURN_IF_ERROR(plan::CheckTensor(state.lse, lse_rule, kDevice, lse));
  KVILT_RETURN_IF_ERROR(plan::CheckAddressed(state.out, out));
  KVILT_RETURN_IF_ERROR(plan::CheckAddressed(state.lse, lse));
  if (state.lse_base != LseBase::kNatural && state.lse_base != LseBase::kTwo) {
    return Status::Invalid(
        plan::FieldPath{name, "lse_base"}.str(),
        fmt::format("{}, expected kNatural or kTwo", static_cast<int>(state.lse_base)));
  }
  if (state.lse_base == first.lse_base) return {};
  return Status::Invalid(plan::FieldPath{name, "lse_base"}.str(),
                         fmt::format("{}, expected {} as in states[0]", BaseName(state.lse_base),
                                     BaseName(first.lse_base)));
}

Status CheckSinks(std::span<const AttentionState> states, const AttentionState& result) {
  std::size_t holder = states.size();
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!states[i].has_sink) continue;
    if (holder < states.size()) {
      return Status::Invalid(fmt::format("states[{}].has_sink", i),
                             fmt::format("true, as in states[{}]; expected at most one: the "
                                         "denominator would count the sink twice",
                                         holder));
    }
    holder = i;
  }
  const bool any = holder < states.size();
  if (result.has_sink == any) return {};
  return Status::Invalid("result.has_sink",
                         fmt::format("{}, expected {} as the states say", result.has_sink, any));
}

// A tensor of the result against one of a state: the same view (where both hold the same thing),
// or apart.
Status CheckAgainst(const TensorView& written, std::string_view name, const TensorView& read,
                    bool same_kind, std::size_t state, std::string_view read_name) {
  if (same_kind && SameView(written, read)) return {};
  if (!plan::MayOverlap(written, read)) return {};
  return Status::Invalid(
      std::string(name),
      fmt::format("overlaps states[{}].{}, expected the very same view or memory of its own", state,
                  read_name));
}

Status CheckOverlaps(std::span<const AttentionState> states, const AttentionState& result) {
  KVILT_RETURN_IF_ERROR(plan::CheckNoSelfOverlap(result.out, {"result", "out"}));
  KVILT_RETURN_IF_ERROR(plan::CheckNoSelfOverlap(result.lse, {"result", "lse"}));
  KVILT_RETURN_IF_ERROR(api::CheckApart(result.lse, "result.lse", result.out, "result.out"));
  for (std::size_t i = 0; i < states.size(); ++i) {
    const AttentionState& state = states[i];
    KVILT_RETURN_IF_ERROR(CheckAgainst(result.out, "result.out", state.out, true, i, "out"));
    KVILT_RETURN_IF_ERROR(CheckAgainst(result.out, "result.out", state.lse, false, i, "lse"));
    KVILT_RETURN_IF_ERROR(CheckAgainst(result.lse, "result.lse", state.out, false, i, "out"));
    KVILT_RETURN_IF_ERROR(CheckAgainst(result.lse, "result.lse", state.lse, true, i, "lse"));
  }
  return {};
}

Status Check(std::span<const AttentionState> states, const AttentionState& result) {
  if (states.empty()) return Status::Invalid("states", "none, expected at least one");
  for (std::size_t i = 0; i < states.size(); ++i) {
    KVILT_RETURN_IF_ERROR(CheckState(states[i], states[0], fmt::format("states[{}]", i)));
  }
  KVILT_RETURN_IF_ERROR(CheckState(result, states[0], "result"));
  KVILT_RETURN_IF_ERROR(CheckSinks(states, result));
  return CheckOverlaps(states, result);
}

cpu::MergeState Bind(const AttentionState& state) {
  cpu::MergeState bound;
  bound.out = static_cast<contract::u8*>(state.out.data);
  bound.format = static_cast<contract::Format>(state.out.dtype);
  bound.row_stride = api::StrideBytes(state.out, 0);
  bound.head_stride = api::StrideBytes(state.out, 1);
  bound.lse = static_cast<float*>(state.lse.data);
  bound.lse_row_stride = state.lse.stride[0];
  bound.lse_head_stride = state.lse.stride[1];
  return bound;
}

}  // namespace

Status MergeStates(const Device& device, std::span<const AttentionState> states,
                   const AttentionState& result, Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckOnCpu(device, "MergeStates"));
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  return api::OrNoMemory("states", "the weights of so many", [&]() -> Status {
    KVILT_RETURN_IF_ERROR(Check(states, result));
    std::vector<cpu::MergeState> bound;
    bound.reserve(states.size());
    for (const AttentionState& state : states) bound.push_back(Bind(state));
    const cpu::MergeShape shape{result.out.shape[0], result.out.shape[1], result.out.shape[2],
                                result.lse_base == LseBase::kTwo};
    cpu::MergeStates(bound, Bind(result), shape, *device.impl()->pool);
    return {};
  });
}

}  // namespace kvilt
