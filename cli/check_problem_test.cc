#include "cli/check_problem.h"

#include <gtest/gtest.h>

#include "cli/check_run.h"

namespace kvilt::cli {
namespace {

// What grows with the scores ends before it excuses everything.
TEST(Judge, ScoresBeyondF32DoNotMakeItBlind) {
  const Device device = Device::Open("cpu", {1}).value();
  const core::Problem problem = core::ParseProblem("decode kv=64 heads=2/1 d=64 out=f32").value();
  const core::ProblemData data = core::BuildProblemShape(problem).value();
  const Plan plan = MakePlan(data.request(), device.spec(), data.plan_options()).value();
  const Tolerance tolerance = ToleranceOf(plan, DType::kF32, false);
  oracle::Error error;
  error.rel_l2 = error.kernel_rel_l2 = error.worst_row_rel_l2 = 0.015;
  error.largest_lse = 1e5;
  EXPECT_NE(Judge(error, plan, tolerance), "");
  error.rel_l2 = error.kernel_rel_l2 = error.worst_row_rel_l2 = 0.05;
  error.largest_lse = 5e11;  // data=extreme sm_scale=1e6
  EXPECT_NE(Judge(error, plan, tolerance).find("f32 does not resolve scores of 5.0e+11"),
            std::string::npos)
      << Judge(error, plan, tolerance);
  error.rel_l2 = error.kernel_rel_l2 = error.worst_row_rel_l2 = 1e-4;
  error.largest_lse = 3000;
  EXPECT_EQ(Judge(error, plan, tolerance), "");
}

TEST(Summarize, RefusedProblemsFailWithoutFigures) {
  CheckResult refused;
  refused.problem = "refused";
  refused.failure = "refused: why";
  refused.refused = true;
  CheckResult passed;
  passed.problem = "passed";
  passed.tolerance = 1;
  passed.error.rel_l2 = 0.5;
  const CheckResult both[] = {refused, passed};
  EXPECT_EQ(Summarize(both).failures, 1);
  EXPECT_EQ(Summarize(both).worst.problem, "passed");
  EXPECT_EQ(Summarize({both, 1}).worst.problem, "");
}

}  // namespace
}  // namespace kvilt::cli
