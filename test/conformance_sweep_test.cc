// Every SIMD target of this machine against the oracle, over the sweep that mixes every option.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/check_run.h"
#include "cli/machine.h"
#include "cli/sweep.h"
#include "src/core/problem_words.h"

namespace kvilt::cli {
namespace {

constexpr std::int64_t kProblems = 2000;      // On the widest target.
constexpr std::int64_t kOtherProblems = 250;  // On each other one, from another part of the sweep.

// KVILT_SWEEP_PROBLEMS cuts the sweep, for sanitizers.
std::int64_t Cut(std::int64_t problems) {
  const char* text = std::getenv("KVILT_SWEEP_PROBLEMS");
  return text == nullptr ? problems : std::min<std::int64_t>(problems, std::atoll(text));
}

class Sweep : public testing::TestWithParam<SimdTarget> {};

TEST_P(Sweep, AgreesWithTheOracle) {
  const bool widest = GetParam() == PresentTargets().back();
  const std::int64_t count = Cut(widest ? kProblems : kOtherProblems);
  const std::uint64_t seed = widest ? 1 : 2 + static_cast<std::uint64_t>(GetParam());
  CheckRunOptions options;
  options.device = "cpu:" + std::string(Name(GetParam()));
  options.threads = 2;
  const auto results = RunChecks(SweepProblems(seed, count), options);
  ASSERT_TRUE(results.ok()) << results.status().message();
  int shown = 0;
  for (const CheckResult& result : *results) {
    if (result.ok() || ++shown > 10) continue;
    ADD_FAILURE() << "kvilt check '" << result.problem << "' --device " << options.device << "\n  "
                  << result.failure;
  }
  EXPECT_EQ(Summarize(*results).failures, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Sweep, testing::ValuesIn(PresentTargets()),
                         [](const auto& target) { return std::string(Name(target.param)); });

// Options by name, and whether a problem uses them. The words of the grammar, but for those about K
// and V: there a word for both sides stands for two words when the sides agree.
std::map<std::string, bool> OptionsOf(const core::Problem& problem) {
  std::map<std::string, bool> options;
  for (const core::Word& word : core::Words()) options[word.name] = word.print(problem).has_value();
  for (const char* both : {"kv_dtype", "layout", "global", "pad", "shift"}) options.erase(both);
  const core::SideSpec defaults;
  for (const bool k : {true, false}) {
    const core::SideSpec& side = k ? problem.k : problem.v;
    const std::string prefix = k ? "k_" : "v_";
    options[prefix + "dtype"] = side.dtype != defaults.dtype;
    options[prefix + "layout"] = side.layout != defaults.layout;
    options[prefix + "global"] = side.global != defaults.global;
    options[prefix + "pad"] = side.row_pad != 0 || side.page_pad != 0;
    options[prefix + "shift"] = side.shift != 0;
  }
  return options;
}

TEST(SweepProblems, EveryTwoOptionsMeet) {
  // Last page lengths exist in CSR tables alone.
  const std::pair<std::string, std::string> kExcluded = {"lengths", "table"};
  std::map<std::pair<std::string, std::string>, int> meetings;
  for (const core::Problem& problem : SweepProblems(1, kProblems)) {
    const auto options = OptionsOf(problem);
    for (const auto& [a, uses_a] : options) {
      for (const auto& [b, uses_b] : options) {
        if (a <= b) meetings[{a, b}] += uses_a && uses_b;
      }
    }
  }
  EXPECT_GT(meetings.size(), 1500u);
  for (const auto& [pair, count] : meetings) {
    if (pair == kExcluded) continue;
    EXPECT_GT(count, 0) << pair.first << " and " << pair.second << " never meet";
  }
}

TEST(SweepProblems, RoundTripThroughTheirTexts) {
  for (const core::Problem& problem : SweepProblems(3, 500)) {
    const auto again = core::ParseProblem(core::ToText(problem));
    ASSERT_TRUE(again.ok()) << core::ToText(problem) << "\n" << again.status().message();
    EXPECT_EQ(*again, problem) << core::ToText(problem);
  }
}

TEST(BenchProblems, EveryScenarioParses) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVILT_BENCH_PROBLEMS)) {
    if (entry.path().extension() != ".problem") continue;
    ++files;
    const std::vector<std::string> arguments = {entry.path().string()};
    const auto problems = core::ProblemsFromArguments(arguments);
    ASSERT_TRUE(problems.ok()) << problems.status().message();
    EXPECT_FALSE(problems->empty()) << entry.path();
  }
  EXPECT_GE(files, 30);
}

}  // namespace
}  // namespace kvilt::cli
