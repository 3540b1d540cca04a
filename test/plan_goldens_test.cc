// Plans of the benchmark problems on the archs that matter, against texts that a person has read.
//
//   plan_goldens_test             compares with test/goldens/plan/<arch>.txt
//   plan_goldens_test --update    writes them anew; then read `git diff test/goldens`
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"
#include "src/plan/device_table.h"

namespace kvilt {
namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "sm_121"};

// Of bench/problems: what TARGETS.md lists for GPUs; each problem once.
std::vector<core::Problem> Problems() {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KVILT_BENCH_PROBLEMS)) {
    const std::string name = entry.path().filename().string();
    for (const char* prefix : {"decode_", "prefill_", "verify."}) {
      if (name.starts_with(prefix)) files.insert(entry.path().string());
    }
  }
  std::vector<core::Problem> problems;
  std::set<std::string> seen;
  const std::vector<std::string> arguments(files.begin(), files.end());
  std::vector<core::Problem> all = core::ProblemsFromArguments(arguments).value();
  for (core::Problem& problem : all) {
    if (seen.insert(core::ToText(problem)).second) problems.push_back(std::move(problem));
  }
  return problems;
}

// Two digits: what a small change of the model does not move.
std::string TwoDigits(double value) {
  if (!(value > 0)) return "0";
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return fmt::format("{:g}", std::round(value / unit) * unit);
}

std::string PlanText(const core::Problem& problem, const DeviceSpec& spec) {
  std::string text = core::ToText(problem) + "\n";
  const core::ProblemData data = core::BuildProblemShape(problem, spec.kind).value();
  const Result<Plan> plan = MakePlan(data.request(), spec, data.plan_options());
  if (!plan.ok()) return text + fmt::format("  refused: {}\n", plan.status().message());
  for (const Launch& launch : plan->launches) {
    text += fmt::format("  {}{}: {} B, {} items on {} of {} blocks, balance {:.2f}, {} us\n",
                        launch.cascade ? "shared: " : "", launch.tile.name, launch.smem_bytes(),
                        launch.items, launch.busy_blocks, launch.blocks, launch.balance,
                        TwoDigits(launch.estimated_us));
  }
  return text + fmt::format("  splits {}, workspace {} B, plan data {} B\n", plan->split.max_splits,
                            plan->workspace_bytes, plan->plan_data_bytes());
}

std::string Golden(const char* arch) {
  const DeviceSpec spec = plan::CudaSpecFor(arch).value();
  std::string text;
  for (const core::Problem& problem : Problems()) text += PlanText(problem, spec);
  return text;
}

std::filesystem::path FileOf(const char* arch) {
  return std::filesystem::path(KVILT_GOLDENS) / "plan" / (std::string(arch) + ".txt");
}

std::vector<std::string> Lines(std::istream& stream) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(PlanGoldens, StandAsRead) {
  for (const char* arch : kArchs) {
    std::ifstream file(FileOf(arch));
    ASSERT_TRUE(file) << FileOf(arch) << " is missing: plan_goldens_test --update";
    std::istringstream planned(Golden(arch));
    const std::vector<std::string> expected = Lines(file), found = Lines(planned);
    std::string problem;
    int differences = 0;
    for (std::size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
      const std::string before = i < expected.size() ? expected[i] : "(nothing)";
      const std::string now = i < found.size() ? found[i] : "(nothing)";
      if (!now.starts_with(" ")) problem = now;
      if (before == now || ++differences > 5) continue;
      ADD_FAILURE() << arch << ": " << problem << "\n  golden " << before << "\n  now    " << now;
    }
    EXPECT_LE(differences, 5) << arch << ": and more; plan_goldens_test --update writes them all";
  }
}

}  // namespace

int UpdateGoldens() {
  for (const char* arch : kArchs) std::ofstream(FileOf(arch)) << Golden(arch);
  return 0;
}

}  // namespace kvilt

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string(argv[1]) == "--update") return kvilt::UpdateGoldens();
  return RUN_ALL_TESTS();
}
