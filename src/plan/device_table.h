// The CUDA devices that can be planned without being there.
#pragma once

#include <span>
#include <string_view>

#include "kvilt/device.h"

namespace kvilt::plan {

// All archs of the table, in rising order.
std::span<const int> CudaArchs();

// "sm_90", or "sm_90:114" with the SMs given. Errors: kUnsupported for an arch that no kernel runs
// on, kInvalidArgument for anything else.
Result<DeviceSpec> CudaSpecFor(std::string_view name);

// The spec of an arch; sms 0 = those of the product in the table. REQUIRES: arch is in the table.
DeviceSpec CudaSpec(int arch, int sms = 0);

}  // namespace kvilt::plan
