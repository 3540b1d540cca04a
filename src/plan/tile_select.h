// How many query rows and KV heads one work item of the CPU takes, and what that needs in L2.
// Functions of dims and device alone, so that no row's treatment depends on its batch.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/device.h"
#include "kvilt/plan.h"

namespace kvilt::plan {

struct ModelDims {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  int group() const { return q_heads / kv_heads; }
  int dims() const { return head_dim_qk + head_dim_vo; }
};

// Query rows of a full row block, >= 1: about kBlockRows / group, fewer where q and the running
// output of one KV head (f32) would fill more than a quarter of L2.
std::int64_t RowsPerBlock(const ModelDims& dims, const DeviceSpec& spec);

// Groups of KV heads into which an item of `rows` query rows must be cut so that q and the running
// outputs of all its heads fill at most half of L2; an eighth from kComputeBoundRows on, where
// walking several heads page by page saves nothing. 1 = all heads together, the page-major order.
int HeadGroups(std::int64_t rows, const ModelDims& dims, const DeviceSpec& spec);

// Fills tile, working set and limit of a CPU launch whose path is set, using their memory again.
// `rows` (query rows) and `heads` (KV heads) are the largest of the plan's items; `operand_bytes`:
// of a decoded K or V element.
void DescribeCpuTile(std::int64_t rows, int heads, int operand_bytes, const ModelDims& dims,
                     const DeviceSpec& spec, Launch& launch);

// Bytes of L2 that planning reckons with: the spec's, or 1 MiB when it does not say.
std::int64_t L2Limit(const DeviceSpec& spec);

}  // namespace kvilt::plan
