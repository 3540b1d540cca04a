// Run refuses what is not the plan's, or wrong, before it reads or writes an operand.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "kvilt/kvilt.h"
#include "src/api/run_fixture.h"

namespace kvilt {
namespace {

using api::test::F32Options;
using api::test::RunProblem;

class RunRefuses : public testing::Test {
 protected:
  RunRefuses() {
    PlanOptions options = F32Options();
    options.split = SplitMode::kFixed;  // So that there is a workspace.
    options.fixed_split_rows = 16;
    const Plan plan = MakePlan(problem.request, device.spec(), options).value();
    EXPECT_GT(plan.workspace_bytes, 0);
    prepared.emplace(Prepare(device, plan).value());
    workspace = Buffer::Allocate(device, plan.workspace_bytes + 512).value();
    space = {workspace.data(), static_cast<std::size_t>(plan.workspace_bytes)};
  }

  // The request is refused so, and out and lse are as they were.
  void Expect(StatusCode code, std::string_view field, std::string_view text = "") {
    const std::vector<float> out = problem.out;
    const Status status = kvilt::Run(*prepared, problem.request, space);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_EQ(status.field(), field) << status.message();
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
    EXPECT_EQ(std::memcmp(out.data(), problem.out.data(), out.size() * sizeof(float)), 0);
  }
  void ExpectPrecondition(std::string_view field, std::string_view text = "") {
    Expect(StatusCode::kFailedPrecondition, field, text);
  }
  void ExpectInvalid(std::string_view field, std::string_view text = "") {
    Expect(StatusCode::kInvalidArgument, field, text);
  }

  DeviceOptions one_thread{1};
  const Device device = Device::Open("cpu", one_thread).value();
  RunProblem problem;
  AttentionRequest& request = problem.request;
  std::optional<PreparedPlan> prepared;
  Buffer workspace;
  std::span<std::byte> space;
};

TEST_F(RunRefuses, NothingWhenAllIsAsPlanned) {
  EXPECT_TRUE(kvilt::Run(*prepared, request, space).ok());
  EXPECT_LE(problem.MaxError(), 1e-5);
  // Other memory of the same shape is fine.
  std::vector<float> q = problem.q;
  request.q.data = q.data();
  EXPECT_TRUE(kvilt::Run(*prepared, request, space).ok());
}

TEST_F(RunRefuses, AnotherDType) {
  request.q.dtype = DType::kBF16;
  ExpectPrecondition("q.dtype", "bf16; the plan was made for f32");
}

TEST_F(RunRefuses, AnotherShape) {
  request.q.shape[0] = 5;
  ExpectPrecondition("q.shape[0]", "5; the plan was made for 6");
}

TEST_F(RunRefuses, AnotherRank) {
  request.q.rank = 2;
  ExpectPrecondition("q.rank");
  request.q.rank = 77;
  ExpectPrecondition("q.rank");
}

TEST_F(RunRefuses, AnotherStride) {
  problem.paged().v.data.stride[1] *= 2;
  ExpectPrecondition("segments[0].v.data.stride[1]", "128; the plan was made for 64");
}

TEST_F(RunRefuses, ALessAlignedBase) {
  problem.q.resize(problem.q.size() + 1);
  request.q.data = problem.q.data() + 1;
  ExpectPrecondition("q.data", "aligned to 16");
}

TEST_F(RunRefuses, AnotherSetOfOperands) {
  request.sink = TensorView::Dense(problem.k.data(), DType::kF32, {4});
  ExpectPrecondition("sink", "made without it");
  request.sink = {};
  request.lse = {};
  ExpectPrecondition("lse", "made with it");
}

TEST_F(RunRefuses, AnotherNumberOfSegments) {
  request.segments.push_back(request.segments[0]);
  ExpectPrecondition("segments");
  request.segments.clear();
  ExpectPrecondition("segments");
}

TEST_F(RunRefuses, AnotherKindOfCache) {
  RaggedKv ragged;
  ragged.k.data = TensorView::Dense(problem.k.data(), DType::kF32, {160, 2, 32});
  ragged.v.data = TensorView::Dense(problem.v.data(), DType::kF32, {160, 2, 32});
  ragged.indptr = std::span<const std::int64_t>(problem.indptr);
  request.segments[0].kv = ragged;
  ExpectPrecondition("segments[0].k.data.rank");
}

TEST_F(RunRefuses, ADeviceTensor) {
  request.q.device.kind = DeviceKind::kCuda;
  ExpectPrecondition("q.device");
  request.q.device = {DeviceKind::kCpu, 1};
  ExpectInvalid("q.device.index", "1");
}

TEST_F(RunRefuses, P33_stale_lengths) {
  problem.kv_len[1] = 6;
  ExpectPrecondition("segments[0].table.kv_len",
                     "request 1 has 6 keys here, the plan was made for 5");
  problem.kv_len[1] = -5;
  ExpectInvalid("segments[0].table.kv_len[1]");
  problem.kv_len[1] = 5;
  problem.q_indptr[1] = 2;
  ExpectPrecondition("q_indptr", "request 0 has 2 query rows, the plan was made for 1");
}

TEST_F(RunRefuses, AnotherBatch) {
  request.q_indptr.size = 3;
  ExpectPrecondition("q_indptr", "2 requests, the plan was made for 3");
}

TEST_F(RunRefuses, TablesThatDoNotHoldTheKeys) {
  problem.indptr[1] -= 1;
  ExpectInvalid("segments[0].table.kv_len[0]", "need 5 pages, the table gives this row 4");
  problem.indptr[1] = 1000;
  ExpectInvalid("segments[0].table.indptr[1]");
  problem.indptr[1] = 5;
  problem.indptr[0] = -1;
  ExpectInvalid("segments[0].table.indptr[1]");
  problem.indptr[0] = 0;
  problem.paged().table.indices.size = 13;  // One less than the rows end at.
  ExpectInvalid("segments[0].table.indptr[3]");
}

TEST_F(RunRefuses, ArraysOfAnotherSize) {
  problem.paged().table.kv_len.size = 2;
  ExpectInvalid("segments[0].table.kv_len.size");
  problem.paged().table.kv_len.size = 3;
  problem.paged().table.indptr.size = 3;
  ExpectInvalid("segments[0].table.indptr.size");
}

// An id outside the cache is an absent page: reported, never read, and the run finishes.
TEST_F(RunRefuses, PageIdsOnlyTheKernelSees) {
  problem.indices[2] = 20;
  const Status status = kvilt::Run(*prepared, request, space);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  for (const float value : problem.out) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(LastError(*prepared), status);
  EXPECT_TRUE(LastError(*prepared).ok());  // Cleared.
}

TEST_F(RunRefuses, NullPointers) {
  for (TensorView* tensor :
       {&request.q, &request.out, &request.lse, &problem.paged().k.data, &problem.paged().v.data}) {
    void* const data = std::exchange(tensor->data, nullptr);
    const Status status = kvilt::Run(*prepared, request, space);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_NE(status.message().find("null"), std::string::npos) << status.message();
    tensor->data = data;
  }
  problem.paged().table.indices.data = nullptr;
  EXPECT_EQ(kvilt::Run(*prepared, request, space).code(), StatusCode::kInvalidArgument);
  request.q_indptr.data = nullptr;
  EXPECT_EQ(kvilt::Run(*prepared, request, space).code(), StatusCode::kInvalidArgument);
}

TEST_F(RunRefuses, ABadDecodeMultiplier) {
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY, 1e6f}) {
    problem.paged().k.global.value = bad;
    const Status status = kvilt::Run(*prepared, request, space);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad << ": " << status.message();
  }
}

// One entry for every option that a run computes with.
TEST_F(RunRefuses, ChangedOptions) {
  const AttentionRequest as_planned = request;
  const std::vector<std::int64_t> positions(6, 3);
  const std::vector<std::function<void()>> changes = {
      [&] { request.sm_scale = 0.3f; },
      [&] { request.q_scale = 2.0f; },
      [&] { request.logits_soft_cap = 20.0f; },
      [&] { request.mask = MaskMode::kNone; },
      [&] { request.window_left = 4; },
      [&] { request.window_right = 4; },
      [&] { request.lse_base = LseBase::kTwo; },
      [&] { request.bias_before_cap = true; },
      [&] { request.rope.emplace(); },
      [&] { request.q_positions = std::span<const std::int64_t>(positions); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    SCOPED_TRACE(i);
    ExpectPrecondition("request", "plan again");
    request = as_planned;
  }
}

// Positions that only RoPE reads: no hash of the plan covers them.
TEST_F(RunRefuses, PositionsThatNoPlanWouldAccept) {
  std::vector<std::int64_t> q_positions = {0, 1, 2, 3, 4, 5};
  std::vector<std::int64_t> key_positions(37 + 5 + 64, 7);
  request.rope.emplace().key_positions = std::span<const std::int64_t>(key_positions);
  request.q_positions = std::span<const std::int64_t>(q_positions);
  PlanOptions options = F32Options();
  prepared.emplace(Prepare(device, MakePlan(request, device.spec(), options).value()).value());
  ASSERT_TRUE(kvilt::Run(*prepared, request, space).ok());
  q_positions[5] = -(std::int64_t{1} << 40) - 1;
  ExpectInvalid("q_positions[5]", "-1099511627777");
  q_positions[5] = 5;
  key_positions[105] = std::int64_t{1} << 60;
  ExpectInvalid("rope.key_positions[105]", "1152921504606846976");
}

// A plan for bits at given offsets, run with bits that are packed, and the other way round.
TEST_F(RunRefuses, P64_mask_bytes_at_other_offsets) {
  // 37, 3 x 5, 2 x 64 bits: 5, 2 and 16 bytes.
  std::vector<std::uint8_t> bits(40, 0xFF);
  const std::vector<std::int64_t> apart = {4, 9, 11, 27};
  const std::vector<std::int64_t> packed = {0, 5, 7, 23};
  request.mask = MaskMode::kCustom;
  request.mask_bits = TensorView::Dense(bits.data(), DType::kU8, {27});
  request.mask_indptr = std::span<const std::int64_t>(apart);
  PlanOptions options = F32Options();
  prepared.emplace(Prepare(device, MakePlan(request, device.spec(), options).value()).value());
  ASSERT_TRUE(kvilt::Run(*prepared, request, space).ok());
  request.mask_indptr = {};
  ExpectPrecondition("mask_indptr", "request 0 has 0 as its first mask byte");
  request.mask_indptr = std::span<const std::int64_t>(packed);
  ExpectPrecondition("mask_indptr", "request 0 has 0 as its first mask byte");

  request.mask_bits.shape[0] = 23;
  request.mask_indptr = {};
  prepared.emplace(Prepare(device, MakePlan(request, device.spec(), options).value()).value());
  ASSERT_TRUE(kvilt::Run(*prepared, request, space).ok());
  request.mask_indptr = std::span<const std::int64_t>(packed);
  EXPECT_TRUE(kvilt::Run(*prepared, request, space).ok());  // The same bytes.
}

TEST_F(RunRefuses, ASmallOrMisalignedWorkspace) {
  const std::span<std::byte> right = space;
  space = right.first(right.size() - 1);
  Expect(StatusCode::kResourceExhausted, "workspace", "the plan needs");
  space = {};
  Expect(StatusCode::kResourceExhausted, "workspace");
  space = {workspace.data() + 64, right.size()};
  ExpectInvalid("workspace", "not aligned to 256 bytes");
  space = {static_cast<std::byte*>(nullptr), right.size()};
  ExpectInvalid("workspace", "null");
}

TEST_F(RunRefuses, Overlaps) {
  request.out.data = problem.q.data();
  ExpectInvalid("out", "overlaps q");
  request.out.data = problem.k.data();
  ExpectInvalid("out", "overlaps segments[0].k.data");
  request.out.data = problem.out.data();
  request.lse.data = problem.out.data();
  ExpectInvalid("lse", "overlaps out");
  request.lse.data = problem.lse.data();

  // The workspace, in an operand and with an operand inside it.
  std::vector<float> large(problem.v.size() + 64);
  float* const aligned =
      large.data() +
      (256 - reinterpret_cast<std::uintptr_t>(large.data()) % 256) / sizeof(float) % 64;
  problem.paged().v.data.data = aligned;
  const std::span<std::byte> right = space;
  space = {reinterpret_cast<std::byte*>(aligned), right.size()};
  ExpectInvalid("workspace", "overlaps segments[0].v.data");
  problem.paged().v.data.data = problem.v.data();
  space = right;
  std::memcpy(workspace.data() + 256, problem.kv_len.data(), 24);
  problem.paged().table.kv_len.data = workspace.data() + 256;
  ExpectInvalid("workspace", "overlaps segments[0].table.kv_len");
  problem.paged().table.kv_len.data = problem.kv_len.data();

  // Host arrays that out would overwrite.
  std::memcpy(problem.out.data(), problem.indptr.data(), 32);
  problem.paged().table.indptr.data = problem.out.data();
  ExpectInvalid("out", "overlaps segments[0].table.indptr");
}

TEST_F(RunRefuses, AStream) {
  const Status status = kvilt::Run(*prepared, request, space, Stream{&problem});
  EXPECT_EQ(status.field(), "stream");
}

}  // namespace
}  // namespace kvilt
