// kvilt info: what this machine can run, and what the binary was built from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kvilt/device.h"
#include "kvilt/version.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt info
  kvilt info --json | jq .devices

A device name goes to --device of the other commands: `kvilt bench --device cpu:avx2 ...`.
`kvilt plan` also accepts targets that this machine lacks.)";

nlohmann::ordered_json DevicesJson(const std::vector<SimdTarget>& targets) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (SimdTarget target : targets) {
    const bool widest = target == targets.back();
    const std::string name = "cpu:" + std::string(Name(target));
    list.push_back({{"name", name}, {"simd", Name(target)}, {"default", widest}});
  }
  return list;
}

nlohmann::ordered_json InfoJson() {
  const Machine machine = ThisMachine();
  nlohmann::ordered_json info;
  info["version"] = KVILT_VERSION;
  info["devices"] = DevicesJson(PresentTargets());
  info["machine"] = {{"cpu", machine.cpu},
                     {"system", machine.system},
                     {"threads", machine.threads},
                     {"memory_bytes", machine.memory_bytes},
                     {"l1d_bytes", machine.l1d_bytes},
                     {"l2_bytes", machine.l2_bytes},
                     {"l3_bytes", machine.l3_bytes}};
  info["compiler"] = KVILT_COMPILER;
  info["build_type"] = KVILT_BUILD_TYPE;
  info["dependencies"] = {
      {"highway", KVILT_HIGHWAY_VERSION},
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"CLI11", CLI11_VERSION},
      {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
  };
  return info;
}

std::string Size(const nlohmann::ordered_json& bytes) {
  const std::int64_t value = bytes.get<std::int64_t>();
  return value > 0 ? fmt::format("{} KiB", value / 1024) : "unknown";
}

void Print(const nlohmann::ordered_json& info) {
  const auto& machine = info["machine"];
  fmt::print("{}  {} ({}, {})\n\n", Bold("kvilt"), info["version"].get<std::string>(),
             info["compiler"].get<std::string>(), info["build_type"].get<std::string>());
  fmt::print("Machine   {}\n", machine["cpu"].get<std::string>());
  fmt::print("          {}, {} hardware threads, {} memory\n", machine["system"].get<std::string>(),
             machine["threads"].get<int>(), HumanBytes(machine["memory_bytes"].get<double>()));
  fmt::print("          caches: L1d {}, L2 {}, L3 {}\n\n", Size(machine["l1d_bytes"]),
             Size(machine["l2_bytes"]), Size(machine["l3_bytes"]));
  fmt::print("Devices   (for --device)\n");
  for (const auto& device : info["devices"]) {
    fmt::print("          {}{}\n", device["name"].get<std::string>(),
               device["default"].get<bool>() ? "   the one that `cpu` picks" : "");
  }
  fmt::print("\nBuilt on ");
  for (const auto& [name, version] : info["dependencies"].items()) {
    fmt::print(" {} {}", name, version.get<std::string>());
  }
  fmt::print("\n");
}

}  // namespace

void AddInfoCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("info", "What this machine can run, and the versions");
  command->footer(kFooter);
  auto json = std::make_shared<bool>(false);
  AddJsonOption(*command, *json);
  command->callback([json, &exit_code] {
    const nlohmann::ordered_json info = InfoJson();
    if (*json) {
      fmt::print("{}\n", info.dump(2));
    } else {
      Print(info);
    }
    exit_code = kExitOk;
  });
}

}  // namespace kvilt::cli
