#include "cli/check_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cli/device_mirror.h"
#include "src/core/check.h"

namespace kvilt::cli {
namespace {

constexpr double kSplitTolerance = 1e-5;

// The bytes of all owned rows of out and lse, in order.
std::vector<std::byte> OutputBytes(const AttentionRequest& request) {
  std::vector<std::byte> bytes;
  const std::int64_t rows = request.q_indptr[request.batch()];
  const auto append = [&](const TensorView& view, std::int64_t elements) {
    const std::int64_t size = StorageBytes(view.dtype);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t h = 0; h < view.shape[1]; ++h) {
        const auto* from = static_cast<const std::byte*>(view.data) +
                           (r * view.stride[0] + h * view.stride[1]) * size;
        bytes.insert(bytes.end(), from, from + elements * size);
      }
    }
  };
  append(request.out, request.out.shape[2]);
  if (request.lse.defined()) append(request.lse, 1);
  return bytes;
}

// The f32 values of out's owned rows that the reference has, as doubles.
std::vector<double> Values(const AttentionRequest& request, const oracle::Reference& reference) {
  std::vector<double> values;
  for (std::int64_t row : reference.rows) {
    for (std::int64_t h = 0; h < reference.q_heads; ++h) {
      const auto* from = static_cast<const float*>(request.out.data) + row * request.out.stride[0] +
                         h * request.out.stride[1];
      values.insert(values.end(), from, from + reference.head_dim_vo);
    }
  }
  return values;
}

double Difference(const std::vector<double>& a, const std::vector<double>& b,
                  const oracle::Reference& reference) {
  double squares = 0, magnitudes = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  for (double magnitude : reference.magnitude) magnitudes += magnitude * magnitude;
  if (squares == 0) return 0;
  return std::sqrt(squares / magnitudes);
}

// Splits at multiples of n must have happened where a row certainly sees keys on both sides of one.
std::string JudgeSplit(const core::Problem& problem, const Plan& plan) {
  if (plan.split.mode != problem.split) {
    return fmt::format("the plan's split mode is {}, asked was {}", Name(plan.split.mode),
                       Name(problem.split));
  }
  bool shared = false;
  for (const core::SegmentSpec& segment : problem.segments) shared |= !segment.owners.empty();
  if (problem.split == SplitMode::kOff && !shared && plan.split.max_splits > 1) {
    return fmt::format("split=off, but a row has {} splits", plan.split.max_splits);
  }
  if (problem.split != SplitMode::kFixed) return "";
  if (problem.window_left >= 0 || problem.window_right >= 0) return "";
  for (std::size_t r = 0; r < problem.kv_len.size(); ++r) {
    const bool sees_all = problem.q_len[r] > 0;  // The last row, in every mask by position.
    const std::int64_t splits =
        (problem.kv_len[r] + problem.fixed_split_rows - 1) / problem.fixed_split_rows;
    if (sees_all && plan.split.max_splits < splits) {
      return fmt::format("{} keys in splits of {} make {} splits, the plan has at most {}",
                         problem.kv_len[r], problem.fixed_split_rows, splits,
                         plan.split.max_splits);
    }
  }
  return "";
}

// Said where scores are too large for the allowance that grows with them.
std::string BeyondF32(const oracle::Error& error) {
  if (Tolerance::WantedSlack(error) <= Tolerance::kMostSlack) return "";
  return fmt::format(
      "; f32 does not resolve scores of {:.1e}, and no more than {} is allowed for it",
      error.largest_lse, Tolerance::kMostSlack);
}

class Checker {
 public:
  Checker(const core::Problem& problem, const Device& device, const CheckOptions& options)
      : problem_(problem), device_(device), options_(options) {
    result_.problem = core::ToText(problem);
  }

  CheckResult Run() {
    auto data = core::BuildProblem(problem_);
    if (!data) return Refused(data.status());
    const AttentionRequest& request = data->request();
    Plan plan;
    if (Status status = RunOn(device_, *data, request, data->plan_options(), &plan); !status.ok()) {
      return Refused(status);
    }
    result_.path = plan.path();
    result_.max_splits = plan.split.max_splits;
    const Tolerance tolerance =
        ToleranceOf(plan, request.out.dtype, problem_.data != core::DataForm::kExtreme);
    const oracle::Reference reference = oracle::Attention(request, options_.max_rows);
    result_.error = oracle::ErrorAgainst(reference, request);
    result_.tolerance = tolerance.total(result_.error);
    Fail(Judge(result_.error, plan, tolerance));
    Fail(JudgeSplit(problem_, plan));
    if (Status status = data->CheckGuards(); !status.ok()) Fail(status.message());
    if (options_.again) {
      if (problem_.poison != core::PoisonForm::kOff) CheckPoison(*data);
      if (request.out.dtype == DType::kF32 && plan.split.max_splits > 1) {
        CheckUnsplit(*data, reference);
      }
    }
    return std::move(result_);
  }

 private:
  CheckResult Refused(const Status& status) {
    result_.refused = true;
    result_.failure = fmt::format("refused: {}", status.message());
    return std::move(result_);
  }
  void Fail(const std::string& failure) {
    if (result_.failure.empty()) result_.failure = failure;
  }

  void CheckPoison(core::ProblemData& data) {
    const std::vector<std::byte> before = OutputBytes(data.request());
    data.PoisonCaches(0x7F);
    if (Status status = RunOn(device_, data, data.request(), data.plan_options()); !status.ok()) {
      Fail(fmt::format("refused the second time: {}", status.message()));
    } else if (OutputBytes(data.request()) != before) {
      Fail("other bytes in what must not be read changed the result, or a second run did");
    }
  }

  void CheckUnsplit(core::ProblemData& data, const oracle::Reference& reference) {
    const std::vector<double> split = Values(data.request(), reference);
    PlanOptions options = data.plan_options();
    options.split = SplitMode::kOff;
    options.fixed_split_rows = 0;
    options.allow_cascade = false;
    if (Status status = RunOn(device_, data, data.request(), options); !status.ok()) {
      return Fail(fmt::format("refused when unsplit: {}", status.message()));
    }
    result_.split_difference = Difference(split, Values(data.request(), reference), reference);
    if (!(result_.split_difference <= kSplitTolerance)) {
      Fail(fmt::format("split and unsplit differ by {:.2e}, accepted {:.0e}",
                       result_.split_difference, kSplitTolerance));
    }
  }

  const core::Problem& problem_;
  const Device& device_;
  const CheckOptions options_;
  CheckResult result_;
};

}  // namespace

Tolerance ToleranceOf(const Plan& plan, DType out_dtype, bool averaged) {
  Tolerance tolerance;
  switch (plan.accuracy) {
    case Accuracy::kNormal:
      tolerance.kernel = 2.5e-3;
      break;
    case Accuracy::kNearExact:
      tolerance.kernel = 3e-4;
      break;
    case Accuracy::kF32:
      tolerance.kernel = 1e-5;
      break;
  }
  if (plan.path() == "cpu/f32") tolerance.kernel = 1e-5;
  // A bf16 weight is off by up to 2^-8 of itself, and so is their sum, the other way.
  if (tolerance.kernel == 2.5e-3) tolerance.row_kernel = 0x1p-7;
  if (out_dtype == DType::kBF16) tolerance.rounding = 2e-3;
  if (out_dtype == DType::kF16) tolerance.rounding = 3e-4;
  if (!averaged) {
    tolerance.kernel *= 2;
    tolerance.rounding *= 2;
  }
  return tolerance;
}

std::string Judge(const oracle::Error& error, const Plan& plan, const Tolerance& tolerance) {
  const double accepted = tolerance.total(error);
  if (error.nan_elements > 0) {
    return fmt::format("{} elements of out or lse are NaN: unwritten, or poison was read",
                       error.nan_elements);
  }
  const bool rounding_explains = error.kernel_rel_l2 <= tolerance.kernel + tolerance.slack(error);
  if (!(error.rel_l2 <= accepted) && !rounding_explains) {
    return fmt::format("rel_l2 {:.2e}, accepted {:.2e} ({}){}", error.rel_l2, accepted, plan.path(),
                       BeyondF32(error));
  }
  const double row_accepted = std::max(2 * accepted, tolerance.row_kernel + 2 * tolerance.rounding);
  if (!(error.worst_row_rel_l2 <= row_accepted)) {
    return fmt::format("rel_l2 {:.2e} at row {} head {}, accepted {:.2e} for a single row ({}){}",
                       error.worst_row_rel_l2, error.worst_row, error.worst_head, row_accepted,
                       plan.path(), BeyondF32(error));
  }
  if (!(error.lse_excess <= 1)) {
    return fmt::format("lse off by {:.2e}, accepted 1e-3 + 2^-21 |lse|", error.lse_err);
  }
  return "";
}

namespace {

// The same on a copy in the device's memory; results and guard zones come back.
Status RunOnGpu(const Device& device, core::ProblemData& data, const AttentionRequest& request,
                const PlanOptions& options, Plan* plan) {
  thread_local std::map<const void*, std::unique_ptr<DeviceMirror>> mirrors;
  std::unique_ptr<DeviceMirror>& mirror = mirrors[device.impl().get()];
  if (!mirror) mirror = std::make_unique<DeviceMirror>(device);
  auto made = MakePlan(mirror->Placed(request), device.spec(), options);
  if (!made) return made.status();
  if (plan != nullptr) *plan = *made;
  const std::int64_t bytes = made->workspace_bytes;
  auto prepared = Prepare(device, std::move(made).value());
  if (!prepared) return prepared.status();
  data.PoisonOutputs();
  const std::span<std::byte> workspace = data.Workspace(bytes);
  KVILT_RETURN_IF_ERROR(mirror->Upload(data.Memory()));
  // Page tables may be in either memory.
  const bool tables = data.problem().seed % 2 == 0;
  KVILT_RETURN_IF_ERROR(Run(*prepared, mirror->Moved(request, tables), mirror->Moved(workspace)));
  KVILT_RETURN_IF_ERROR(mirror->Download());
  return LastError(*prepared);
}

}  // namespace

Status RunOn(const Device& device, core::ProblemData& data, const AttentionRequest& request,
             const PlanOptions& options, Plan* plan) {
  if (device.spec().kind == DeviceKind::kCuda)
    return RunOnGpu(device, data, request, options, plan);
  auto made = MakePlan(request, device.spec(), options);
  if (!made) return made.status();
  if (plan != nullptr) *plan = *made;
  const std::int64_t bytes = made->workspace_bytes;
  auto prepared = Prepare(device, std::move(made).value());
  if (!prepared) return prepared.status();
  data.PoisonOutputs();
  return Run(*prepared, request, data.Workspace(bytes));
}

CheckResult CheckProblem(const core::Problem& problem, const Device& device,
                         const CheckOptions& options) {
  return Checker(problem, device, options).Run();
}

}  // namespace kvilt::cli
