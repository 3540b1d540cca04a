// Which path runs a request, and why the others do not.
#pragma once

#include <string>
#include <vector>

#include "kvilt/attention.h"
#include "src/contract/work_item.h"

namespace kvilt::plan {

struct PathChoice {
  contract::PathId id = contract::PathId::kCpuF32;
  std::string name;              // "cpu/f32"
  std::vector<Refusal> refused;  // The candidates not taken, each with its reason.
};

// The first candidate, in order of speed, that can do everything the request asks for; or the one
// that options.path names. A function of dtypes, options and device only, never of lengths or
// other requests. Errors: an unknown path (kInvalidArgument), a forced path that cannot do it
// (kUnsupported, with its reason), a device kind that no path of this build serves.
Result<PathChoice> ChoosePath(const AttentionRequest& request, const DeviceSpec& spec,
                              const PlanOptions& options);

// Limits that planning reads must make sense: slots in 1..65536, a known kind and SIMD target, and
// for CUDA the limits of a multiprocessor that kernels can run on.
Status CheckSpec(const DeviceSpec& spec);

// Bytes of a decoded K or V element on a CPU path.
int OperandBytes(contract::PathId path);

// The spec of a CPU by its parts, present or not; l2_bytes 0 = not known. Named "cpu:<target>".
DeviceSpec CpuSpec(SimdTarget target, int slots, std::int64_t l2_bytes = 0);

}  // namespace kvilt::plan
