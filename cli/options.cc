#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace kvilt::cli {
namespace {

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

void AddDeviceOptions(CLI::App& command, DeviceArgs& args, bool threads) {
  command
      .add_option("--device", args.device,
                  "Where it runs: cpu, a SIMD target such as cpu:avx2 (`kvilt info` lists "
                  "this machine's), or cuda:0")
      ->type_name("NAME")
      ->capture_default_str();
  if (!threads) return;
  command.add_option("--threads", args.threads, "Worker threads; 0 = one per hardware thread")
      ->each([&args](const std::string&) { args.threads_asked = true; })
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void AddJsonOption(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print the result as JSON on stdout");
}

DeviceKind DeviceKindOf(std::string_view name) {
  return name.starts_with("cuda") ? DeviceKind::kCuda : DeviceKind::kCpu;
}

Result<Device> OpenDevice(const DeviceArgs& args) {
  DeviceOptions options;
  // Workers are the CPU's; commands have a default number of them.
  if (DeviceKindOf(args.device) == DeviceKind::kCpu || args.threads_asked) {
    options.threads = args.threads;
  }
  return Device::Open(args.device, options);
}

std::string DeviceName(const Device& device) {
  const DeviceSpec& spec = device.spec();
  if (spec.kind != DeviceKind::kCpu) return spec.name;
  return "cpu:" + std::string(Name(spec.simd));
}

void AddProblemArguments(CLI::App& command, std::vector<std::string>& arguments, bool required) {
  CLI::Option* option = command.add_option(
      "problem", arguments,
      "A problem text such as 'decode b=1 kv=8192 heads=32/8 d=128', or a file with one a line; "
      "`kvilt problems --help` has the grammar");
  option->type_name("TEXT|FILE");
  if (required) option->required();
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kvilt::cli
