#include "src/cpu/run_attention.h"

#include <optional>
#include <string>
#include <vector>

#include "src/cpu/aligned_buffer.h"
#include "src/cpu/float_mode.h"
#include "src/cpu/item_walk.h"
#include "src/cpu/launch.h"
#include "src/cpu/write_results.h"

namespace kvilt::cpu {
namespace {

using contract::AttentionParams;
using contract::Format;
using contract::PathId;

// Kept between runs of one calling thread.
struct Memory {
  AlignedBuffer rope;
  std::vector<AlignedBuffer> workers;
};

Memory& ThreadMemory() {
  thread_local Memory memory;
  return memory;
}

bool ExactInBf16(Format format) { return format != Format::kF32 && format != Format::kF16; }

Status CheckPath(PathId path, const AttentionParams& params) {
  if (path != PathId::kCpuAvx512Bf16) return Status::Ok();
  if (params.rope.enabled) return Status::Unsupported("rope", "cpu/avx512_bf16 does not rotate");
  for (int s = 0; s < params.segment_count; ++s) {
    const contract::SegmentParams& segment = params.segments[s];
    if (ExactInBf16(static_cast<Format>(segment.k.format)) &&
        ExactInBf16(static_cast<Format>(segment.v.format))) {
      continue;
    }
    return Status::Unsupported("segments[" + std::to_string(s) + "]",
                               "cpu/avx512_bf16 reads bf16, e4m3, e5m2 and nvfp4 caches");
  }
  return Status::Ok();
}

Launch MakeLaunch(const plan::PlanDataView& plan, const AttentionParams& params,
                  std::byte* workspace, const AttentionBody& body, AbsentPages& absent) {
  const contract::PlanHeader& header = *plan.header;
  Launch launch;
  launch.plan = &plan;
  launch.params = &params;
  launch.body = &body;
  launch.config.head_dim_qk = header.head_dim_qk;
  launch.config.head_dim_vo = header.head_dim_vo;
  launch.config.q_is_bf16_exact = ExactInBf16(static_cast<Format>(params.q_format));
  launch.config.near_exact = header.accuracy != 0;
  launch.group = header.kv_heads > 0 ? header.q_heads / header.kv_heads : 1;
  launch.workspace = workspace;
  launch.absent = &absent;
  return launch;
}

i64 ScratchBytes(const Launch& launch) {
  i64 bytes = MergeScratchBytes(launch.config.head_dim_vo);
  for (const contract::WorkItem& item : launch.plan->items) {
    bytes = contract::Max(bytes, ItemScratchBytes(launch, item));
  }
  return bytes;
}

Status AbsentPageStatus(const AbsentPages& absent) {
  if (!absent.any()) return Status::Ok();
  return Status::Invalid(
      "segments[" + std::to_string(absent.segment()) + "].table.indices",
      "request " + std::to_string(absent.request()) + ", page " + std::to_string(absent.page()) +
          ": the page id is outside [0, pages); its keys were treated as absent");
}

}  // namespace

Status RunAttention(const plan::PlanDataView& plan, const AttentionParams& params,
                    std::byte* workspace, SimdTarget target, WorkerPool& pool) {
  const PathId path = static_cast<PathId>(plan.header->path);
  const AttentionBody* body = FindBody(path, target);
  if (body == nullptr) {
    return Status::Unsupported("target", "the plan's path does not run on " +
                                             std::string(Name(target)) + " on this machine");
  }
  if (Status status = CheckPath(path, params); !status.ok()) return status;

  AbsentPages absent;
  Launch launch = MakeLaunch(plan, params, workspace, *body, absent);
  Memory& memory = ThreadMemory();
  std::optional<RopeAngles> rope;
  if (params.rope.enabled) {
    ScopedFloatMode mode;
    launch.rope = &rope.emplace(params.rope, memory.rope);
  }
  const i64 bytes = ScratchBytes(launch);
  if (memory.workers.size() < static_cast<std::size_t>(pool.threads())) {
    memory.workers.resize(static_cast<std::size_t>(pool.threads()));
  }
  for (AlignedBuffer& buffer : memory.workers) buffer.Reserve(bytes);
  const auto scratch = [&memory](int worker) {
    return memory.workers[static_cast<std::size_t>(worker)].data();
  };
  pool.ParallelFor(static_cast<i64>(plan.items.size()), [&](int worker, i64 index) {
    ScopedFloatMode mode;
    RunItem(launch, plan.items[static_cast<std::size_t>(index)], scratch(worker));
  });
  pool.ParallelFor(static_cast<i64>(plan.merges.size()), [&](int worker, i64 index) {
    ScopedFloatMode mode;
    RunMerge(launch, plan.merges[static_cast<std::size_t>(index)], scratch(worker));
  });
  return AbsentPageStatus(absent);
}

}  // namespace kvilt::cpu
