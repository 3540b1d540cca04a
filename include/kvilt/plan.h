// Plan: what will run, decided without a device. A plain value that compares and prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/device.h"
#include "kvilt/request.h"
#include "kvilt/status.h"

namespace kvilt {

enum class SplitMode : std::uint8_t {
  kAuto = 0,   // As many splits as fill the device and fit the workspace.
  kFixed = 1,  // A split every `fixed_split_rows` keys: a row's bits depend on its request alone.
  kOff = 2,    // One split per row.
};
std::string_view Name(SplitMode mode);  // "auto", "fixed", "off"

// How probabilities and 16-bit operands are kept; SEMANTICS section 4 has the bounds.
enum class Accuracy : std::uint8_t {
  kNormal = 0,     // bf16 probabilities: error <= 2.5e-3 before output rounding.
  kNearExact = 1,  // <= 3e-4
  kF32 = 2,        // <= 1e-5
};
std::string_view Name(Accuracy accuracy);  // "normal", "near_exact", "f32"

// What a server may ever ask for, to size its buffers ahead of time.
struct PlanCapacity {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  std::int64_t requests = 0;    // Of a batch.
  std::int64_t query_rows = 0;  // Of a batch, all requests together.
  std::int64_t kv_len = 0;      // Of one request.
  int segments = 1;             // Of a request.
  int shared_segments = 0;      // Of those, how many may have owners.

  friend bool operator==(const PlanCapacity&, const PlanCapacity&) = default;
};

struct PlanOptions {
  // --- Affects bits ---
  SplitMode split = SplitMode::kAuto;
  std::int64_t fixed_split_rows = 0;  // kFixed only, >= 1.
  Accuracy accuracy = Accuracy::kNormal;
  // --- Affects speed and memory (and, in kAuto, the order of f32 additions) ---
  std::int64_t workspace_limit_bytes = -1;  // -1 = no limit. kAuto fits any value, 0 included.
  std::string path;                         // Empty = chosen. Else the path or a refusal.
  std::string tile;                         // CUDA: the same for a tile, by TileChoice::name.
  // Read shared segments once for all owners if it pays. Never in kOff, nor in kFixed on CUDA,
  // where another tile would make bits depend on who shares.
  bool allow_cascade = true;
  // Room for UpdatePlan: workspace_bytes, plan data, grid and tiles hold for every batch within, so
  // a captured graph stays right while lengths change. The batch planned for decides which classes
  // of query lengths have a launch. Heads and head dims must be the request's.
  std::optional<PlanCapacity> capacity;
  // --- Affects checking ---
  bool check_pages = true;  // Validate every id of host page tables at plan time.

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

// One byte count of the tile's working set (shared memory on a GPU, cache-resident scratch on the
// CPU), by name.
struct SmemPart {
  std::string name;
  std::int64_t bytes = 0;
  friend bool operator==(const SmemPart&, const SmemPart&) = default;
};

// The tile of the chosen path. Zero where a field has no meaning on the device.
struct TileChoice {
  std::string name;
  int q_rows = 0;       // Query rows (times group) of a block.
  int kv_rows = 0;      // Keys per step.
  int head_dim_qk = 0;  // Padded.
  int head_dim_vo = 0;  // Padded.
  int kv_heads = 0;     // KV heads walked by one work item.
  // CUDA only.
  int stages = 0;      // Of keys in flight.
  int warps = 0;       // That compute; `producer_warps` fetch and decode for them.
  int warps_rows = 0;  // warps = kv_heads * warps_rows * warps_kv * warps_vo
  int warps_kv = 0;
  int warps_vo = 0;
  int producer_warps = 0;
  int registers = 0;  // Of a computing thread.
  int blocks_per_sm = 0;
  int copy_bytes = 0;      // Per copy of codes.
  bool bulk_copy = false;  // Whole pages by one copy each.
  bool fused_merge = false;
  friend bool operator==(const TileChoice&, const TileChoice&) = default;
};

// A path or tile that was passed over.
struct Refusal {
  std::string name;
  std::string reason;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// Bytes per copy that base and strides of an operand allow: 16, 8, 4, 2 or 1.
struct CopyWidth {
  std::string operand;  // "segments[0].k.data"
  int bytes = 0;
  friend bool operator==(const CopyWidth&, const CopyWidth&) = default;
};

// Shapes, dtypes and strides that the plan was made for; Run refuses operands that differ.
struct OperandSignature {
  std::string operand;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;
  int alignment = 1;  // Largest power of two <= 16 that divides the base address.
  friend bool operator==(const OperandSignature&, const OperandSignature&) = default;
};

// CUDA: what the tiles of a launch were weighed for; with the plan's dims and options enough for
// Describe to weigh them again. Updates keep the tile, so they keep this too.
struct TileWork {
  int rows = 0;             // Query rows times group that want to share a read of the keys.
  std::int64_t blocks = 0;  // Row blocks,
  std::int64_t keys = 0;    // and their keys together. kFixed: nominal, so that bits do not follow.
  bool one_head = false;    // Only tiles of one KV head: a group is cut into slices.
  // How the caches lie in memory.
  int copy_bytes = 16;       // The narrowest copy of one head's codes and scales,
  int page_copy_bytes = 16;  // and of a whole page's.
  std::int64_t page_size = 0;
  bool whole_heads = false;  // A page of one head is one stretch,
  bool whole_pages = false;  // a page of all heads is.
  friend bool operator==(const TileWork&, const TileWork&) = default;
};

// One launch: all items of one tile. The CPU has one; a GPU one for each class of query lengths and
// each pair of K and V dtypes that the batch has.
struct Launch {
  std::string path;  // "cpu/avx512_bf16", "cuda/decode", ...: what will run, never something else.
  TileChoice tile;
  // CUDA: what the tile reads. `mixed_dtypes`: whatever the segments have.
  DType k_dtype = DType::kBF16;
  DType v_dtype = DType::kBF16;
  bool mixed_dtypes = false;
  bool cascade = false;        // CUDA: reads shared segments once for several requests.
  std::vector<SmemPart> smem;  // Shared memory of a block, or a worker's working set.
  std::int64_t smem_limit_bytes = 0;
  std::int64_t items = 0;
  double balance = 0;  // As in SplitSummary, of this launch.
  // CUDA only.
  int blocks = 0;             // The persistent grid,
  int busy_blocks = 0;        // and those of it that have items.
  std::int64_t kv_bytes = 0;  // Read by its items, once for all requests of a cascade.
  double estimated_us = 0;    // By the cost model: launch, busiest block, merge.
  double merge_us = 0;        // Of these, stitching its splits.
  double roofline_us = 0;     // Its keys read once, or its multiply-adds, at the peak rate.
  TileWork work;

  std::int64_t smem_bytes() const {
    std::int64_t total = 0;
    for (const SmemPart& part : smem) total += part.bytes;
    return total;
  }
  friend bool operator==(const Launch&, const Launch&) = default;
};

struct SplitSummary {
  SplitMode mode = SplitMode::kAuto;
  std::int64_t fixed_rows = 0;     // kFixed only.
  std::int64_t items = 0;          // Work items.
  std::int64_t max_splits = 0;     // Of any row; 1 = nothing was split.
  std::int64_t merged_rows = 0;    // Rows whose result is stitched from several partials.
  std::int64_t cascade_items = 0;  // Items that serve several requests with one read.
  double balance = 0;              // Modelled makespan * slots / total cost; 1 = perfect.
  friend bool operator==(const SplitSummary&, const SplitSummary&) = default;
};

// Immutable once made; share it between threads freely.
struct Plan {
  DeviceSpec spec;
  PlanOptions options;  // As given to MakePlan; UpdatePlan plans with them again.
  Accuracy accuracy = Accuracy::kNormal;
  // At least one, in the order in which they run.
  std::vector<Launch> launches = std::vector<Launch>(1);
  std::vector<Refusal> refused;  // Paths passed over. Describe weighs the tiles of a GPU again.
  std::vector<CopyWidth> copy_widths;
  SplitSummary split;

  int q_heads = 0;
  int kv_heads = 0;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  std::vector<std::int64_t> q_len;   // Per request.
  std::vector<std::int64_t> kv_len;  // Per request, all segments together.
  bool lse_has_sink = false;
  LseBase lse_base = LseBase::kNatural;

  // Partials only. Run wants at least this, aligned to 256.
  std::int64_t workspace_bytes = 0;
  std::int64_t kv_bytes = 0;  // KV bytes that the plan reads, scales included.
  double flops = 0;           // Unmasked multiply-adds times two.

  std::vector<OperandSignature> signature;
  std::uint64_t positions_hash = 0;  // Of q_positions, when a window made the plan read them.
  std::uint64_t options_hash = 0;    // Of every scalar option; Run refuses a request that differs.
  // The work and merge lists in the form that backends read (src/plan/plan_data.h); its size is the
  // plan-data query, for the capacity where there is one.
  std::vector<std::byte> data;
  std::int64_t plan_data_bytes() const { return static_cast<std::int64_t>(data.size()); }

  const Launch& launch() const { return launches.front(); }
  const std::string& path() const { return launch().path; }

  friend bool operator==(const Plan&, const Plan&) = default;
};

// One split of one request and a range of KV heads, decoded from Plan::data for people and tests.
struct WorkItemInfo {
  std::int64_t item = 0;
  std::int64_t request = 0;    // One entry per (item, request): cascade items give several.
  std::int64_t launch = 0;     // In Plan::launches.
  std::int64_t block = 0;      // CUDA: the block of the grid that runs it.
  std::int64_t row_begin = 0;  // Query rows of the request, [begin, end).
  std::int64_t row_end = 0;
  std::int64_t head_begin = 0;  // KV heads, [begin, end).
  std::int64_t head_end = 0;
  std::int64_t key_begin = 0;  // Keys of the request, [begin, end).
  std::int64_t key_end = 0;
  std::int64_t split = 0;  // Index of the split of this row block, in key order.
  // First vector (row of a query head) in the workspace; -1 = writes out and lse directly.
  std::int64_t partial = -1;
  std::int64_t cost = 0;  // Of the whole item, modelled: SM cycles (CUDA), multiply-adds (CPU).
  friend bool operator==(const WorkItemInfo&, const WorkItemInfo&) = default;
};
std::vector<WorkItemInfo> WorkItems(const Plan& plan);

// What the plan is, and with `explain` also why: tiles passed over, bytes, balance.
struct DescribeOptions {
  bool explain = false;
  bool items = false;  // List every work item.
};
std::string Describe(const Plan& plan, DescribeOptions options = {});
std::string DescribeJson(const Plan& plan,
                         DescribeOptions options = {});  // docs/planner.md: schema

}  // namespace kvilt
