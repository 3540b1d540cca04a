// kvilt bench: time per problem beside what the memory of this machine can do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_measure.h"
#include "cli/bench_planning.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt bench                                            a few decode shapes and a prefill
  kvilt bench 'decode b=1 kv=131072 heads=32/8 d=128 kv_dtype=nvfp4' --threads 1
  kvilt bench bench/problems/readme.problem --json > readme.json
  kvilt bench 'decode kv=32768 split=off' 'decode kv=32768'   two problems side by side
  kvilt bench --planning --device sm_90                  what planning a batch costs on the host

Every problem is checked against the float64 oracle first (a sample of rows and heads when it is
large); one that fails has no time. Runs rotate over input sets until together they are twice the
last-level cache, within 1 GB. The ceiling is a plain read of as many bytes, by as many threads, in
the same run: compare shares, not times, between machines.)";

const std::vector<std::string> kDefaultProblems = {
    "decode b=1 kv=32768 heads=32/8 d=128 kv_dtype=nvfp4",
    "decode b=1 kv=32768 heads=32/8 d=128 kv_dtype=e4m3",
    "decode b=1 kv=32768 heads=32/8 d=128 kv_dtype=bf16",
    "decode kv=32768,15x1024 heads=32/8 d=128 kv_dtype=nvfp4",
    "prefill q=256 kv=2048 heads=32/8 d=128 kv_dtype=nvfp4",
};

// 256 decode requests, and 512 of decode, verify and prefill; lengths spread over three orders of
// magnitude, in no order.
const std::vector<std::string> kPlanningProblems = {"bench/problems/plan_256_decode.problem",
                                                    "bench/problems/plan_512_mixed.problem"};

struct BenchArgs {
  std::vector<std::string> problems;
  DeviceArgs device;
  BenchOptions options;
  bool planning = false;
  bool json = false;
};

nlohmann::ordered_json ToJson(const BenchResult& r) {
  nlohmann::ordered_json json = {
      {"problem", r.problem}, {"device", r.device}, {"path", r.path}, {"threads", r.threads}};
  const bool timed = r.failure.empty();
  const auto number = [&](double value) {
    return timed ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  json["us"] = number(r.us);
  json["us_min"] = number(r.us_min);
  json["bytes_per_token"] = number(r.bytes_per_token);
  json["ns_per_token"] = number(r.ns_per_token);
  json["gb_per_s"] = number(r.gb_per_s);
  json["ceiling_gb_per_s"] = number(r.ceiling_gb_per_s);
  json["share_of_ceiling"] = number(r.share_of_ceiling);
  json["gflop_per_s"] = number(r.gflop_per_s);
  json["rel_l2"] = r.check.rows > 0 ? nlohmann::ordered_json(r.check.rel_l2) : nullptr;
  json["checked"] = {{"rows", r.check.rows},
                     {"q_heads", r.check.q_heads},
                     {"out_not_finite", r.check.out_not_finite},
                     {"lse_not_finite", r.check.lse_not_finite}};
  json["split"] = {
      {"mode", Name(r.split.mode)}, {"items", r.split.items}, {"max_splits", r.split.max_splits}};
  json["runs"] = r.runs;
  json["input_sets"] = r.input_sets;
  json["working_set_bytes"] = r.working_set_bytes;
  json["cold"] = r.cold;
  json["failure"] = timed ? nlohmann::ordered_json() : nlohmann::ordered_json(r.failure);
  return json;
}

std::vector<std::string> TableRow(const BenchResult& r) {
  return {HumanTime(r.us),
          HumanNumber(r.bytes_per_token),
          HumanNumber(r.ns_per_token),
          HumanNumber(r.gb_per_s),
          HumanNumber(r.ceiling_gb_per_s),
          fmt::format("{:.0f} %", 100 * r.share_of_ceiling),
          HumanNumber(r.gflop_per_s),
          HumanError(r.check.rel_l2),
          fmt::format("{}", r.split.max_splits),
          r.cold ? "cold" : "warm",
          r.problem};
}

void PrintTable(const std::vector<BenchResult>& results) {
  Table table({"time", "B/token", "ns/token", "GB/s", "ceiling", "share", "GFLOP/s", "rel_l2",
               "splits", "inputs", "problem"},
              {10});
  bool timed = false;
  for (const BenchResult& result : results) {
    if (!result.failure.empty()) continue;
    table.Add(TableRow(result));
    timed = true;
  }
  const BenchResult& any = results.front();
  const char* const unit = any.path.starts_with("cuda/") ? "SM" : "thread";
  fmt::print("{} on {} {}{}\n\n", any.device, any.threads, unit, any.threads == 1 ? "" : "s");
  if (timed) {
    fmt::print(
        "{}\n"
        "  time      median of one call       ns/token  per KV token and KV head\n"
        "  B/token   KV bytes, all KV heads   GB/s      KV bytes, scales too\n"
        "  rel_l2    against float64          ceiling   GB/s of a plain read of the same inputs\n"
        "  inputs    cold: twice the last-level cache\n",
        table.Render());
  }
  for (const BenchResult& result : results) {
    if (result.failure.empty()) continue;
    fmt::print("{}FAILED  {}\n        {}\n", timed ? "\n" : "", result.problem, result.failure);
  }
}

nlohmann::ordered_json ToJson(const PlanningTimes& t) {
  return {{"problem", t.problem},
          {"device", t.device},
          {"requests", t.requests},
          {"items", t.items},
          {"plan_data_bytes", t.plan_data_bytes},
          {"plan_us", t.plan_us},
          {"replan_us", t.replan_us},
          {"sort_us", t.sort_us},
          {"plan_per_sort", t.plan_us / t.sort_us}};
}

// The device of a plan need not exist, so nothing is opened.
int RunPlanningBench(const BenchArgs& args) {
  const auto problems =
      core::ProblemsFromArguments(args.problems.empty() ? kPlanningProblems : args.problems);
  if (!problems.ok()) return Fail(problems.status());
  Result<DeviceSpec> spec = SpecFor(args.device.device);
  if (!spec.ok()) return Fail(spec.status());
  if (args.device.threads > 0) spec->slots = args.device.threads;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  Table table({"plan", "again", "sort", "plan/sort", "items", "data", "problem"}, {6});
  for (const core::Problem& problem : *problems) {
    const Result<PlanningTimes> times = MeasurePlanning(problem, *spec);
    if (!times.ok()) return Fail(times.status());
    json.push_back(ToJson(*times));
    table.Add({HumanTime(times->plan_us), HumanTime(times->replan_us), HumanTime(times->sort_us),
               fmt::format("{:.1f}", times->plan_us / times->sort_us),
               fmt::format("{}", times->items),
               HumanBytes(static_cast<double>(times->plan_data_bytes)),
               fmt::format("{} requests: {:.60}", times->requests, times->problem)});
  }
  if (args.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print(
        "planning for {}, one thread\n\n{}\n"
        "  plan   MakePlan from nothing, pages unchecked    again  UpdatePlan: tiles and memory "
        "stay\n"
        "  sort   std::sort of the batch's key lengths\n",
        spec->name, table.Render());
  }
  return kExitOk;
}

int RunBench(const BenchArgs& args) {
  if (args.planning) return RunPlanningBench(args);
  const auto problems =
      core::ProblemsFromArguments(args.problems.empty() ? kDefaultProblems : args.problems);
  if (!problems.ok()) return Fail(problems.status());
  const Result<Device> device = OpenDevice(args.device);
  if (!device.ok()) return Fail(device.status());
  std::vector<BenchResult> results;
  {
    Progress progress("bench", static_cast<std::int64_t>(problems->size()));
    for (const core::Problem& problem : *problems) {
      const auto done = static_cast<std::int64_t>(results.size());
      results.push_back(Measure(problem, *device, args.options,
                                [&](std::string_view what) { progress.Update(done, what); }));
    }
  }
  bool failed = false;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) {
    failed = failed || !result.failure.empty();
    json.push_back(ToJson(result));
  }
  if (args.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    PrintTable(results);
  }
  return failed ? kExitFailed : kExitOk;
}

}  // namespace

void AddBenchCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bench", "Time per KV token and GB/s, against a measured read ceiling");
  command->footer(kFooter);
  auto args = std::make_shared<BenchArgs>();
  AddProblemArguments(*command, args->problems, false);
  AddDeviceOptions(*command, args->device);
  command->add_option("--seconds", args->options.seconds, "Timed seconds per problem")
      ->type_name("S")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--tile", args->options.tile,
                   "The tile to use on a GPU, by its name in `kvilt plan --explain`")
      ->type_name("NAME");
  command->add_flag("--planning", args->planning,
                    "Time of planning instead, for any device (--device sm_90), beside sorting");
  AddJsonOption(*command, args->json);
  command->callback([args, &exit_code] { exit_code = RunBench(*args); });
}

}  // namespace kvilt::cli
