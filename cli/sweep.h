// The conformance sweep: small problems that mix every option of the problem grammar.
#pragma once

#include <cstdint>
#include <vector>

#include "src/core/problem.h"

namespace kvilt::cli {

// Problem `index` of the sweep of `seed`: drawn at random, then made legal, so that a backend that
// does all of SEMANTICS must accept it. Every two options meet in a sweep of 2,000 problems
// (sweep_test.cc holds it to that). Pure.
core::Problem SweepProblem(std::uint64_t seed, std::int64_t index);

// The same for a GPU: what its kernels refuse for good (f32 operands, other accuracies, head dims
// that are no multiple of 16) is drawn again, and dims and dtypes come from a few dozen classes, so
// that a sweep compiles a few hundred kernels and not thousands.
core::Problem GpuSweepProblem(std::uint64_t seed, std::int64_t index);

std::vector<core::Problem> SweepProblems(std::uint64_t seed, std::int64_t count,
                                         DeviceKind device = DeviceKind::kCpu);

}  // namespace kvilt::cli
