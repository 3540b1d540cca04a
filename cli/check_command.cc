// kvilt check: the library against the float64 oracle.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/check_run.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/sweep.h"
#include "cli/terminal.h"
#include "src/core/problem.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt check 'decode b=8 kv=4096 heads=32/8 d=128 page=16 kv_dtype=nvfp4'
  kvilt check bench/problems/decode_1x8k.problem      a file, one problem a line
  kvilt check --sweep                                 2,000 small problems that mix every option
  kvilt check --sweep --seed 7 --problems 300 --device cpu:avx2 --json
  kvilt check --sweep --all-targets                   on every SIMD target of this machine
  kvilt check --sweep --device cuda:0                 on a GPU, problems that its kernels take

Each problem is planned, run and compared with attention in float64 on the same stored bytes. All
memory that must not be read holds NaN, all that must be written does too. A failure prints the
command that reproduces it; a refused problem counts as one. Errors are relative to || sum p|v| ||. `kvilt problems --help` explains
problem texts.)";

constexpr int kDefaultThreads = 2;

struct CheckArgs {
  std::vector<std::string> problems;
  DeviceArgs device{"cpu", kDefaultThreads};
  bool sweep = false;
  bool all_targets = false;
  bool json = false;
  std::uint64_t seed = 1;
  std::int64_t count = 2000;
  std::int64_t max_rows = 0;
};

struct TargetResult {
  std::string device;
  std::vector<CheckResult> results;
  CheckSummary summary;
};

std::string Reproducer(const std::string& problem, const std::string& device, int threads) {
  std::string text = fmt::format("kvilt check '{}'", problem);
  if (device != "cpu") text += " --device " + device;
  if (threads != kDefaultThreads) text += fmt::format(" --threads {}", threads);
  return text;
}

nlohmann::ordered_json Number(double value) {
  if (!std::isfinite(value)) return nullptr;  // JSON has no infinity.
  return value;
}

// A refused problem has no figures.
nlohmann::ordered_json Measured(const CheckResult& result, double value) {
  return result.refused ? nullptr : Number(value);
}

nlohmann::ordered_json SummaryJson(const CheckSummary& summary) {
  nlohmann::ordered_json json;
  json["problems"] = summary.problems;
  json["failures"] = summary.failures;
  json["worst"] = nullptr;
  if (summary.worst.problem.empty()) return json;
  json["worst"] = {{"problem", summary.worst.problem},
                   {"rel_l2", Number(summary.worst.error.rel_l2)},
                   {"lse_err", Number(summary.worst.error.lse_err)},
                   {"tolerance", summary.worst.tolerance},
                   {"path", summary.worst.path}};
  return json;
}

void PrintJson(const std::vector<TargetResult>& targets, double seconds) {
  std::vector<CheckResult> all;
  for (const TargetResult& target : targets) {
    all.insert(all.end(), target.results.begin(), target.results.end());
  }
  nlohmann::ordered_json json = SummaryJson(Summarize(all));
  json["seconds"] = seconds;
  json["failed"] = nlohmann::ordered_json::array();
  json["targets"] = nlohmann::ordered_json::array();
  for (const TargetResult& target : targets) {
    nlohmann::ordered_json entry = {{"device", target.device}};
    entry.update(SummaryJson(target.summary));
    json["targets"].push_back(entry);
    for (const CheckResult& result : target.results) {
      if (result.ok()) continue;
      json["failed"].push_back({{"device", target.device},
                                {"problem", result.problem},
                                {"failure", result.failure},
                                {"refused", result.refused},
                                {"rel_l2", Measured(result, result.error.rel_l2)},
                                {"lse_err", Measured(result, result.error.lse_err)}});
    }
  }
  fmt::print("{}\n", json.dump(2));
}

void PrintFailures(const TargetResult& target, int threads) {
  constexpr std::int64_t kShown = 20;
  std::int64_t shown = 0;
  for (const CheckResult& result : target.results) {
    if (result.ok()) continue;
    if (++shown > kShown) {
      fmt::print("... and {} more\n", target.summary.failures - kShown);
      return;
    }
    fmt::print("FAILED  {}\n        {}\n", result.failure,
               Reproducer(result.problem, target.device, threads));
  }
}

void PrintSummary(const TargetResult& target, double seconds) {
  const CheckSummary& summary = target.summary;
  fmt::print("{}: {} problems, {} failures, {:.1f} s\n", Bold(target.device), summary.problems,
             summary.failures, seconds);
  if (summary.worst.problem.empty()) return;
  fmt::print("  nearest to its bound ({:.0f} %): rel_l2 {} of {}, lse off by {} ({})\n  {}\n",
             100 * ShareOfTolerance(summary.worst), HumanNumber(summary.worst.error.rel_l2),
             HumanNumber(summary.worst.tolerance), HumanNumber(summary.worst.error.lse_err),
             summary.worst.path, summary.worst.problem);
}

void PrintTable(const TargetResult& target) {
  Table table({"", "rel_l2", "accepted", "worst row", "lse off by", "split-unsplit", "splits",
               "path", "problem"},
              {0, 7, 8});
  for (const CheckResult& r : target.results) {
    if (r.refused) {
      table.Add({"REFUSED", "", "", "", "", "", "", "", r.problem});
      continue;
    }
    table.Add({r.ok() ? "ok" : "FAILED", HumanNumber(r.error.rel_l2), HumanNumber(r.tolerance),
               HumanNumber(r.error.worst_row_rel_l2), HumanNumber(r.error.lse_err),
               r.split_difference > 0 ? HumanNumber(r.split_difference) : "",
               fmt::format("{}", r.max_splits), r.path, r.problem});
  }
  fmt::print("{}", table.Render());
}

// The devices to check on: the one asked for, or all SIMD targets of this machine.
std::vector<std::string> Devices(const CheckArgs& args) {
  if (!args.all_targets) return {args.device.device};
  std::vector<std::string> devices;
  for (SimdTarget target : PresentTargets()) devices.push_back(fmt::format("cpu:{}", Name(target)));
  return devices;
}

Result<std::vector<core::Problem>> Problems(const CheckArgs& args) {
  if (!args.sweep && args.problems.empty()) {
    return Status::Invalid("check",
                           "expected problems, files or --sweep; `kvilt check --help` "
                           "shows examples");
  }
  auto problems = core::ProblemsFromArguments(args.problems);
  if (problems.ok() && args.sweep) {
    const auto sweep = SweepProblems(args.seed, args.count, DeviceKindOf(args.device.device));
    problems->insert(problems->end(), sweep.begin(), sweep.end());
  }
  return problems;
}

int RunCheck(const CheckArgs& args) {
  if (args.all_targets && args.device.device != "cpu") {
    return Fail(fmt::format("--all-targets with --device {}, expected cpu", args.device.device),
                kExitUsage);
  }
  const auto problems = Problems(args);
  if (!problems.ok()) return Fail(problems.status());
  std::vector<TargetResult> targets;
  bool failed = false;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds_since = [](auto from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  for (const std::string& name : Devices(args)) {
    const auto start = std::chrono::steady_clock::now();
    Progress progress(name, static_cast<std::int64_t>(problems->size()));
    std::int64_t failures = 0;
    CheckRunOptions options;
    options.device = name;
    options.threads = args.device.threads;
    options.threads_asked = args.device.threads_asked;
    options.check.max_rows = args.max_rows;
    options.progress = [&](std::int64_t done, const CheckResult& result) {
      if (!result.ok()) ++failures;
      progress.Update(done, failures > 0 ? fmt::format("{} failed", failures) : "");
    };
    auto results = RunChecks(*problems, options);
    progress.Clear();
    if (!results.ok()) return Fail(results.status());
    targets.push_back({name, std::move(results).value(), {}});
    TargetResult& target = targets.back();
    target.summary = Summarize(target.results);
    failed |= target.summary.failures > 0;
    if (args.json) continue;
    if (!args.sweep) PrintTable(target);
    PrintFailures(target, args.device.threads);
    if (args.sweep || target.results.size() > 1) PrintSummary(target, seconds_since(start));
  }
  if (args.json) PrintJson(targets, seconds_since(begin));
  return failed ? kExitFailed : kExitOk;
}

}  // namespace

void AddCheckCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("check", "The backend against attention in float64");
  command->footer(kFooter);
  auto args = std::make_shared<CheckArgs>();
  AddProblemArguments(*command, args->problems, false);
  CLI::Option* sweep = command->add_flag("--sweep", args->sweep,
                                         "Also the generated problems that mix every option");
  command->add_option("--seed", args->seed, "Of the sweep")
      ->type_name("N")
      ->needs(sweep)
      ->capture_default_str();
  command->add_option("--problems", args->count, "How many problems the sweep has")
      ->type_name("N")
      ->needs(sweep)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10000000}))
      ->capture_default_str();
  AddDeviceOptions(*command, args->device, false);
  command
      ->add_option("--threads", args->device.threads,
                   "Worker threads of a problem; two, so that work is really split even where the "
                   "machine has one")
      ->each([args](const std::string&) { args->device.threads_asked = true; })
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--all-targets", args->all_targets, "On every SIMD target of this machine");
  command
      ->add_option("--max-rows", args->max_rows,
                   "Rows that float64 computes, evenly spaced; 0 = all")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  AddJsonOption(*command, args->json);
  command->callback([args, &exit_code] { exit_code = RunCheck(*args); });
}

}  // namespace kvilt::cli
