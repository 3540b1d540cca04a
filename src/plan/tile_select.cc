#include "src/plan/tile_select.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/contract/softmax.h"
#include "src/contract/types.h"
#include "src/plan/cost_model.h"

namespace kvilt::plan {
namespace {

constexpr std::int64_t kDefaultL2Bytes = std::int64_t{1} << 20;
constexpr std::int64_t kLeastBlockRows = 16;  // Times group.
constexpr std::int64_t kF32Bytes = 4;

// q and the running output of one row of one query head.
std::int64_t RowStateBytes(const ModelDims& dims) { return dims.dims() * kF32Bytes; }

}  // namespace

std::int64_t L2Limit(const DeviceSpec& spec) {
  return spec.l2_bytes > 0 ? spec.l2_bytes : kDefaultL2Bytes;
}

std::int64_t RowsPerBlock(const ModelDims& dims, const DeviceSpec& spec) {
  const std::int64_t fitting = L2Limit(spec) / 4 / RowStateBytes(dims);
  const std::int64_t rows = std::clamp(fitting, kLeastBlockRows, kBlockRows);
  return std::max<std::int64_t>(1, rows / dims.group());
}

int HeadGroups(std::int64_t rows, const ModelDims& dims, const DeviceSpec& spec) {
  const std::int64_t head_rows = rows * dims.group();
  const std::int64_t room = L2Limit(spec) / (head_rows < kComputeBoundRows ? 2 : 8);
  const std::int64_t together =
      std::clamp<std::int64_t>(room / (head_rows * RowStateBytes(dims)), 1, dims.kv_heads);
  return static_cast<int>(contract::CeilDiv<std::int64_t>(dims.kv_heads, together));
}

void DescribeCpuTile(std::int64_t rows, int heads, int operand_bytes, const ModelDims& dims,
                     const DeviceSpec& spec, Launch& launch) {
  const std::int64_t head_rows = rows * dims.group();
  TileChoice& tile = launch.tile;
  tile.q_rows = static_cast<int>(head_rows);
  tile.kv_rows = static_cast<int>(kTileKeys);
  tile.head_dim_qk = dims.head_dim_qk;
  tile.head_dim_vo = dims.head_dim_vo;
  tile.kv_heads = heads;
  tile.name.clear();
  fmt::format_to(std::back_inserter(tile.name), "{} {}x{} d{}/{}", launch.path, tile.q_rows,
                 tile.kv_rows, dims.head_dim_qk, dims.head_dim_vo);

  const std::int64_t state_rows = head_rows * heads;
  const std::pair<const char*, std::int64_t> parts[] = {
      {"q", state_rows * dims.head_dim_qk * kF32Bytes},
      {"k_tile", kTileKeys * dims.head_dim_qk * operand_bytes},
      {"v_tile", kTileKeys * dims.head_dim_vo * operand_bytes},
      {"scores", head_rows * kTileKeys * kF32Bytes},
      {"out", state_rows * dims.head_dim_vo * kF32Bytes},
      {"softmax", state_rows * contract::kStateFloats * kF32Bytes},
  };
  launch.smem.resize(std::size(parts));
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    launch.smem[i].name = parts[i].first;
    launch.smem[i].bytes = parts[i].second;
  }
  launch.smem_limit_bytes = L2Limit(spec);
}

}  // namespace kvilt::plan
