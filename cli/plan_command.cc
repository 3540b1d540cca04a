// kvilt plan: what would run, and why, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt plan 'decode b=1 kv=131072 heads=32/8 d=128 kv_dtype=nvfp4'
  kvilt plan --explain 'decode kv=131072,63x1024 heads=32/8 d=128'   also why: tiles, bytes, balance
  kvilt plan --items --threads 8 'decode kv=32768 split=fixed:4096'  every work item, for 8 threads
  kvilt plan --device cpu:avx2 --json 'prefill q=512 kv=8192'        for a machine that is not there

A plan is a pure function of the problem and of the device's limits, so the device need not exist.
With --json one problem gives an object, several give a list.)";

struct PlanArgs {
  std::vector<std::string> problems;
  DeviceArgs device;
  DescribeOptions describe;
  bool json = false;
};

Result<std::vector<Plan>> MakePlans(const PlanArgs& args) {
  Result<DeviceSpec> spec = SpecFor(args.device.device);
  if (!spec.ok()) return spec.status();
  if (args.device.threads > 0) spec->slots = args.device.threads;
  const Result<std::vector<core::Problem>> problems = core::ProblemsFromArguments(args.problems);
  if (!problems.ok()) return problems.status();
  std::vector<Plan> plans;
  for (const core::Problem& problem : *problems) {
    const Result<core::ProblemData> data = core::BuildProblemShape(problem, spec->kind);
    if (!data.ok()) return data.status();
    Result<Plan> plan = MakePlan(data->request(), *spec, data->plan_options());
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(plan).value());
  }
  return plans;
}

void PrintJson(const std::vector<Plan>& plans, const DescribeOptions& describe) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Plan& plan : plans) {
    list.push_back(nlohmann::ordered_json::parse(DescribeJson(plan, describe)));
  }
  fmt::print("{}\n", (list.size() == 1 ? list[0] : list).dump(2));
}

int RunPlan(const PlanArgs& args) {
  const Result<std::vector<Plan>> plans = MakePlans(args);
  if (!plans.ok()) return Fail(plans.status());
  if (args.json) {
    PrintJson(*plans, args.describe);
    return kExitOk;
  }
  for (std::size_t i = 0; i < plans->size(); ++i) {
    fmt::print("{}{}", i > 0 ? "\n" : "", Describe((*plans)[i], args.describe));
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
  command->add_flag("--explain", args->describe.explain,
                    "Also why: tiles passed over, bytes by part, copy widths, balance");
  command->add_flag("--items", args->describe.items, "List every work item");
  AddJsonOption(*command, args->json);
  command->callback([args, &exit_code] { exit_code = RunPlan(*args); });
}

}  // namespace kvilt::cli
