// Options that several commands share, so that they are spelled and explained once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvilt/device.h"
#include "kvilt/status.h"

namespace CLI {
class App;
}

namespace kvilt::cli {

struct DeviceArgs {
  std::string device = "cpu";
  int threads = 0;             // 0 = one per hardware thread.
  bool threads_asked = false;  // By the user: refused for a GPU, which has no workers.
};

// --device for commands that run something; with `threads`, also --threads.
void AddDeviceOptions(CLI::App& command, DeviceArgs& args, bool threads = true);
// --json: results as JSON on stdout, and nothing else there.
void AddJsonOption(CLI::App& command, bool& json);

// Of a device's name, present or not.
DeviceKind DeviceKindOf(std::string_view name);

// Opens args.device with args.threads workers.
Result<Device> OpenDevice(const DeviceArgs& args);

// Its name with the SIMD target that runs, whatever name it was opened by: "cpu:avx2".
std::string DeviceName(const Device& device);

// A positional argument list of problem texts or files, for core::ProblemsFromArguments.
void AddProblemArguments(CLI::App& command, std::vector<std::string>& arguments, bool required);

// The candidate nearest to `word` by edit distance, or empty when none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace kvilt::cli
