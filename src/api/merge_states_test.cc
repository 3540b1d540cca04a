// MergeStates through the public API: strides, aliases, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kvilt/attention.h"

namespace kvilt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Device TestDevice() { return Device::Open("cpu", {.threads = 2}).value(); }

struct StateMemory {
  std::vector<float> out;
  std::vector<float> lse;
  AttentionState state;

  // [rows = 3, heads = 2, head_dim = 8]
  StateMemory(float out_value, float lse_value) : out(48, out_value), lse(6, lse_value) {
    state.out = TensorView::Dense(out.data(), DType::kF32, {3, 2, 8});
    state.lse = TensorView::Dense(lse.data(), DType::kF32, {3, 2});
  }
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;
};

TEST(MergeStates, P57_every_element_is_written_and_empty_states_are_not_read) {
  const Device device = TestDevice();
  StateMemory empty(kNan, -kInf);
  StateMemory full(3.0f, 1.0f);
  StateMemory result(kNan, kNan);
  const std::vector<AttentionState> empties = {empty.state, empty.state};
  ASSERT_EQ(MergeStates(device, empties, result.state), Status::Ok());
  EXPECT_EQ(result.out, std::vector<float>(48, 0.0f));
  EXPECT_EQ(result.lse, std::vector<float>(6, -kInf));
  const std::vector<AttentionState> mixed = {empty.state, full.state};
  ASSERT_EQ(MergeStates(device, mixed, result.state), Status::Ok());
  EXPECT_EQ(result.out, full.out);
  EXPECT_EQ(result.lse, full.lse);
}

TEST(MergeStates, AnyStridesAndInPlace) {
  const Device device = TestDevice();
  StateMemory a(0.0f, std::log(2.0f));
  StateMemory b(1.0f, std::log(8.0f));
  // The result: heads outermost, lse transposed.
  std::vector<float> out(48, kNan);
  std::vector<float> lse(6, kNan);
  AttentionState result;
  result.out = TensorView::Dense(out.data(), DType::kF32, {3, 2, 8});
  result.out.stride[0] = 8;
  result.out.stride[1] = 24;
  result.lse = TensorView::Dense(lse.data(), DType::kF32, {3, 2});
  result.lse.stride[0] = 1;
  result.lse.stride[1] = 3;
  a.out[8 + 5] = 0.5f;  // Row 0, head 1, element 5.
  const std::vector<AttentionState> states = {a.state, b.state};
  ASSERT_EQ(MergeStates(device, states, result), Status::Ok());
  EXPECT_NEAR(out[0], 0.8f, 1e-6);
  EXPECT_NEAR(out[24 + 5], 0.9f, 1e-6);
  EXPECT_NEAR(lse[5], std::log(10.0f), 1e-6);

  ASSERT_EQ(MergeStates(device, states, b.state), Status::Ok());
  EXPECT_NEAR(b.out[0], 0.8f, 1e-6);
  EXPECT_NEAR(b.out[13], 0.9f, 1e-6);
  EXPECT_NEAR(b.lse[5], std::log(10.0f), 1e-6);
}

TEST(MergeStates, EmptyBatchIsFine) {
  const Device device = TestDevice();
  AttentionState state;
  state.out = TensorView::Dense(static_cast<void*>(nullptr), DType::kBF16, {0, 2, 8});
  state.lse = TensorView::Dense(static_cast<void*>(nullptr), DType::kF32, {0, 2});
  const std::vector<AttentionState> states = {state};
  EXPECT_EQ(MergeStates(device, states, state), Status::Ok());
}

struct Merge {
  StateMemory a{1.0f, 0.0f};
  StateMemory b{2.0f, 0.0f};
  StateMemory r{7.0f, 7.0f};
  std::vector<AttentionState> states{a.state, b.state};
  AttentionState result = r.state;
};

std::string RefusedField(const Device& device, void (*spoil)(Merge&)) {
  Merge merge;
  spoil(merge);
  const Status status = MergeStates(device, merge.states, merge.result);
  EXPECT_EQ(merge.r.out, std::vector<float>(48, 7.0f)) << status.message();
  EXPECT_EQ(merge.r.lse, std::vector<float>(6, 7.0f)) << status.message();
  return status.field();
}

TEST(MergeStates, P58_bases_and_sinks_must_agree) {
  const Device device = TestDevice();
  const auto field = [&](void (*spoil)(Merge&)) { return RefusedField(device, spoil); };
  EXPECT_EQ(field([](Merge& m) { m.states[1].lse_base = LseBase::kTwo; }), "states[1].lse_base");
  EXPECT_EQ(field([](Merge& m) { m.result.lse_base = LseBase::kTwo; }), "result.lse_base");
  EXPECT_EQ(field([](Merge& m) { m.states[0].lse_base = static_cast<LseBase>(7); }),
            "states[0].lse_base");
  EXPECT_EQ(field([](Merge& m) {
              m.states[0].has_sink = m.states[1].has_sink = m.result.has_sink = true;
            }),
            "states[1].has_sink");
  EXPECT_EQ(field([](Merge& m) { m.states[1].has_sink = true; }), "result.has_sink");
  EXPECT_EQ(field([](Merge& m) { m.result.has_sink = true; }), "result.has_sink");
  Merge good;
  good.states[1].has_sink = good.result.has_sink = true;
  EXPECT_EQ(MergeStates(device, good.states, good.result), Status::Ok());
}

TEST(MergeStates, RefusesWrongOperandsByName) {
  const Device device = TestDevice();
  const auto field = [&](void (*spoil)(Merge&)) { return RefusedField(device, spoil); };
  EXPECT_EQ(field([](Merge& m) { m.states.clear(); }), "states");
  EXPECT_EQ(field([](Merge& m) { m.states[0].out = {}; }), "states[0].out");
  EXPECT_EQ(field([](Merge& m) { m.states[1].lse = {}; }), "states[1].lse");
  EXPECT_EQ(field([](Merge& m) { m.states[1].out.data = nullptr; }), "states[1].out.data");
  EXPECT_EQ(field([](Merge& m) { m.result.lse.data = nullptr; }), "result.lse.data");
  EXPECT_EQ(field([](Merge& m) { m.states[1].out.shape[0] = 2; }), "states[1].out.shape[0]");
  EXPECT_EQ(field([](Merge& m) { m.states[1].lse.shape[1] = 1; }), "states[1].lse.shape[1]");
  EXPECT_EQ(field([](Merge& m) { m.result.out.shape[2] = 4; }), "result.out.shape[2]");
  EXPECT_EQ(field([](Merge& m) { m.states[1].out.stride[2] = 2; }), "states[1].out.stride[2]");
  EXPECT_EQ(field([](Merge& m) { m.states[0].out.dtype = DType::kE4M3; }), "states[0].out.dtype");
  EXPECT_EQ(field([](Merge& m) { m.states[0].lse.dtype = DType::kF16; }), "states[0].lse.dtype");
  EXPECT_EQ(field([](Merge& m) { m.result.out.stride[1] = 4; }), "result.out.stride[1]");
  EXPECT_EQ(field([](Merge& m) { m.result.out.device.kind = DeviceKind::kCuda; }),
            "result.out.device");
}

TEST(MergeStates, RefusesPartialOverlap) {
  const Device device = TestDevice();
  const auto field = [&](void (*spoil)(Merge&)) { return RefusedField(device, spoil); };
  EXPECT_EQ(field([](Merge& m) { m.result.out.data = m.b.out.data() + 8; }), "result.out");
  EXPECT_EQ(field([](Merge& m) {
              m.result.out.data = m.b.out.data();
              m.result.out.dtype = DType::kBF16;
            }),
            "result.out");
  EXPECT_EQ(field([](Merge& m) {
              m.result.out.data = m.b.out.data();
              m.result.out.stride[0] = 8;
              m.result.out.stride[1] = 24;
            }),
            "result.out");
  EXPECT_EQ(field([](Merge& m) { m.result.lse.data = m.a.lse.data() + 1; }), "result.lse");
  EXPECT_EQ(field([](Merge& m) { m.result.lse.data = m.a.out.data(); }), "result.lse");
  EXPECT_EQ(field([](Merge& m) { m.result.lse.data = m.r.out.data(); }), "result.lse");
}

}  // namespace
}  // namespace kvilt
