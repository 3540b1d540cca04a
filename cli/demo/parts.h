// The parts of the demo. Each takes the captures, runs on the device, and returns plain numbers.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cli/demo/capture.h"
#include "cli/demo/results.h"
#include "kvilt/device.h"

namespace kvilt::cli::demo {

struct Effort {
  std::int64_t min_runs = 5;
  double seconds = 0.2;             // Per timing.
  std::int64_t reference_rows = 0;  // Query rows that float64 judges, evenly spaced; 0 = all.
  std::vector<std::int64_t> contexts = {2048, 8192, 32768, 131072};
};
Effort QuickEffort();

using Stage = std::function<void(std::string_view)>;

CaptureFacts Describe(std::span<const Capture> captures, const Effort& effort);

// (a) Every format over every layer.
Result<std::vector<FormatResult>> RunFormats(const Device& device,
                                             std::span<const Capture> captures,
                                             const Effort& effort, const Stage& stage);
// The needle's query over the context, original and NVFP4. Takes the last layer.
Result<AttentionProfile> RunProfile(const Device& device, const Capture& capture);
// (b) Decode with split off and auto over the first capture, tiled.
Result<DecodeResult> RunDecode(const Device& device, const Capture& capture, const Effort& effort,
                               const Stage& stage);
// A mixed batch planned for this device and for one with more threads.
Result<std::vector<PlanResult>> RunPlans(const DeviceSpec& spec);

// (c) Forks of a prefix.
Result<ForkResult> RunFork(const Device& device, const Capture& capture);

}  // namespace kvilt::cli::demo
