// One problem through the library, judged by the oracle: what `kvilt check` and the conformance
// tests do for each problem.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"
#include "src/oracle/oracle.h"

namespace kvilt::cli {

// SEMANTICS section 4: the error that the kernel may have before its output is rounded, and what
// the rounding adds. The path cpu/f32 computes in f32 whatever was asked for, so it is held to the
// bound of accuracy f32 always.
struct Tolerance {
  double kernel = 0;
  double rounding = 0;
  // What a single row may reach by the kernel where that is more than twice `kernel`: with two or
  // three keys, roundings of weights are at their worst instead of averaging out.
  double row_kernel = 0;
  double total() const { return kernel + rounding; }
  // Scores of hundreds (a steep ALiBi, say) are f32 numbers with that many fewer digits behind the
  // point, as the bound of lse allows too: 2^-23 |lse| on top. Below 1e-6 for ordinary scores, and
  // never so much that nothing is judged any more.
  static constexpr double kMostSlack = 1e-2;
  static double WantedSlack(const oracle::Error& error) { return 0x1p-23 * error.largest_lse; }
  double slack(const oracle::Error& error) const {
    return std::min(WantedSlack(error), kMostSlack);
  }
  double total(const oracle::Error& error) const { return total() + slack(error); }
};
// `averaged` false: the terms are all alike (DataForm::kExtreme), so roundings add up instead of
// averaging out, as they do in a single row: twice as much is accepted.
Tolerance ToleranceOf(const Plan& plan, DType out_dtype, bool averaged = true);

struct CheckOptions {
  std::int64_t max_rows = 0;  // Rows that the oracle computes; 0 = all.
  // Beside the comparison with the oracle: again with other poison (bits must not change), and
  // f32 results again unsplit (SEMANTICS section 4: within 1e-5).
  bool again = true;
};

struct CheckResult {
  std::string problem;   // Canonical text: the reproducer.
  std::string failure;   // Empty = passed.
  bool refused = false;  // The library would not plan or run it; `failure` says why.
  std::string path;
  std::int64_t max_splits = 0;
  double tolerance = 0;
  oracle::Error error;
  double split_difference = 0;  // Against the unsplit run, relative to the magnitude; 0 = not run.
  bool ok() const { return failure.empty(); }
};

// Plans, runs and judges `problem` on `device`. Fails when: it is refused; the error, lse or a
// single row is out of bounds; an element is unwritten; memory around the outputs or the workspace
// changed; the split that the problem asks for did not happen; poison changed a bit; split and
// unsplit differ.
CheckResult CheckProblem(const core::Problem& problem, const Device& device,
                         const CheckOptions& options = {});

// Runs a request on operands of `data` (request may be data.request() with something changed) with
// a poisoned workspace of exactly the plan's size. Outputs are poisoned first.
Status RunOn(const Device& device, core::ProblemData& data, const AttentionRequest& request,
             const PlanOptions& options, Plan* plan = nullptr);

// What is wrong with outputs of this error that this plan made; empty when nothing is. A single row
// is held to twice the tolerance.
std::string Judge(const oracle::Error& error, const Plan& plan, const Tolerance& tolerance);

}  // namespace kvilt::cli
