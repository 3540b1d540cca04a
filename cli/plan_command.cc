// kvilt plan: what would run, and why, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/plan_picture.h"
#include "cli/terminal.h"
#include "kvilt/attention.h"
#include "src/core/file.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt plan 'decode b=1 kv=131072 heads=32/8 d=128 kv_dtype=nvfp4'
  kvilt plan --explain 'decode kv=131072,63x1024 heads=32/8 d=128'   also why: tiles, bytes, balance
  kvilt plan --items --threads 8 'decode kv=32768 split=fixed:4096'  every work item, for 8 threads
  kvilt plan --device cpu:avx2 --json 'prefill q=512 kv=8192'        for a machine that is not there
  kvilt plan --device sm_121 --explain 'decode kv=131072 heads=16/2 d=512/256 kv_dtype=nvfp4'
  kvilt plan --device sm_90:114 --svg plan.svg 'decode kv=131072,63x1024 kv_dtype=nvfp4'

A plan is a pure function of the problem and of the device's limits, so the device need not exist.
GPUs are named by arch: sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121,
each with the SMs of its largest product, or with so many: sm_90:114 is an sm_90 of 114 SMs.
docs/planner.md has their limits, the model and the JSON. With --json one problem gives an object,
several give a list.)";

struct PlanArgs {
  std::vector<std::string> problems;
  DeviceArgs device;
  DescribeOptions describe;
  bool json = false;
  std::string svg;  // File, empty = none.
};

struct Planned {
  std::string problem;
  Plan plan;
};

Result<std::vector<Planned>> MakePlans(const PlanArgs& args) {
  Result<DeviceSpec> spec = SpecFor(args.device.device);
  if (!spec.ok()) return spec.status();
  if (args.device.threads > 0) spec->slots = args.device.threads;
  const Result<std::vector<core::Problem>> problems = core::ProblemsFromArguments(args.problems);
  if (!problems.ok()) return problems.status();
  std::vector<Planned> plans;
  for (const core::Problem& problem : *problems) {
    const Result<core::ProblemData> data = core::BuildProblemShape(problem, spec->kind);
    if (!data.ok()) return data.status();
    Result<Plan> plan = MakePlan(data->request(), *spec, data->plan_options());
    if (!plan.ok()) return plan.status();
    plans.push_back({core::ToText(problem), std::move(plan).value()});
  }
  return plans;
}

void PrintJson(const std::vector<Planned>& plans, const DescribeOptions& describe) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [problem, plan] : plans) {
    list.push_back(nlohmann::ordered_json::parse(DescribeJson(plan, describe)));
  }
  fmt::print("{}\n", (list.size() == 1 ? list[0] : list).dump(2));
}

Status WritePicture(const std::vector<Planned>& plans, const std::string& path) {
  if (plans.size() != 1) {
    return Status::Invalid("--svg", fmt::format("{} problems, expected one", plans.size()));
  }
  const std::string svg = PlanPicture(plans[0].plan, plans[0].problem);
  const std::span<const std::byte> bytes[] = {std::as_bytes(std::span(svg))};
  return core::WriteFile(path, bytes);
}

int RunPlan(const PlanArgs& args) {
  const Result<std::vector<Planned>> plans = MakePlans(args);
  if (!plans.ok()) return Fail(plans.status());
  if (!args.svg.empty()) {
    const Status written = WritePicture(*plans, args.svg);
    if (!written.ok()) return Fail(written);
  }
  if (args.json) {
    PrintJson(*plans, args.describe);
    return kExitOk;
  }
  for (std::size_t i = 0; i < plans->size(); ++i) {
    fmt::print("{}{}", i > 0 ? "\n" : "", Describe((*plans)[i].plan, args.describe));
  }
  return kExitOk;
}

}  // namespace

void AddPlanCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("plan", "What would run for a problem, and why");
  command->footer(kFooter);
  auto args = std::make_shared<PlanArgs>();
  AddProblemArguments(*command, args->problems, true);
  AddDeviceOptions(*command, args->device);
  command->get_option("--device")
      ->description(
          "For what: cpu, a SIMD target such as cpu:avx2, or a GPU such as sm_90 or sm_90:114; "
          "none need "
          "be here");
  command->add_flag("--explain", args->describe.explain,
                    "Also why: tiles passed over, bytes by part, copy widths, balance");
  command->add_flag("--items", args->describe.items, "List every work item");
  AddJsonOption(*command, args->json);
  command
      ->add_option("--svg", args->svg,
                   "Also draw which block of the grid (or thread) reads which keys")
      ->type_name("FILE");
  command->callback([args, &exit_code] { exit_code = RunPlan(*args); });
}

}  // namespace kvilt::cli
