#include "cli/bench_gpu.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cli/device_mirror.h"
#include "src/contract/read_args.h"
#include "src/core/check.h"
#include "src/core/problem_data.h"
#include "src/cuda/gpu.h"

namespace kvilt::cli {
namespace {

// Inputs together, so that no set is found in an L2 of 60 MB.
constexpr std::int64_t kInputBytes = std::int64_t{400} << 20;
constexpr std::int64_t kMaxSets = 256;
constexpr int kMinReplays = 11;
constexpr int kWarmReplays = 2;

// Frees what the driver made, whatever happens.
class Timer {
 public:
  static Result<std::unique_ptr<Timer>> Create(std::shared_ptr<cuda::Gpu> gpu) {
    auto timer = std::make_unique<Timer>();
    timer->gpu_ = std::move(gpu);
    const auto stream = timer->gpu_->CreateStream();
    if (!stream.ok()) return stream.status();
    timer->stream_ = *stream;
    for (cuda::EventHandle* event : {&timer->begin_, &timer->end_}) {
      const auto made = timer->gpu_->CreateEvent(true);
      if (!made.ok()) return made.status();
      *event = *made;
    }
    return timer;
  }
  ~Timer() {
    if (begin_ != nullptr) gpu_->DestroyEvent(begin_);
    if (end_ != nullptr) gpu_->DestroyEvent(end_);
    if (stream_ != nullptr) gpu_->DestroyStream(stream_);
  }
  cuda::StreamHandle stream() const { return stream_; }

  // Microseconds of each replay of the graph of what `enqueue` enqueues,
  // at least kMinReplays of them and for about `seconds`.
  Result<std::vector<double>> Replay(const std::function<Status()>& enqueue, double seconds) const {
    KVILT_RETURN_IF_ERROR(gpu_->BeginCapture(stream_));
    const Status enqueued = enqueue();
    const auto graph = gpu_->EndCapture(stream_);
    if (!graph.ok()) return enqueued.ok() ? graph.status() : enqueued;
    Result<std::vector<double>> times =
        enqueued.ok() ? Launches(*graph, seconds) : Result<std::vector<double>>(enqueued);
    gpu_->DestroyGraph(*graph);
    return times;
  }

 private:
  Result<std::vector<double>> Launches(cuda::GraphExecHandle graph, double seconds) const {
    std::vector<double> times;
    double spent = 0;
    for (int i = 0; i < kWarmReplays + kMinReplays || spent < seconds; ++i) {
      KVILT_RETURN_IF_ERROR(gpu_->RecordEvent(begin_, stream_));
      KVILT_RETURN_IF_ERROR(gpu_->LaunchGraph(graph, stream_));
      KVILT_RETURN_IF_ERROR(gpu_->RecordEvent(end_, stream_));
      KVILT_RETURN_IF_ERROR(gpu_->WaitForStream(stream_));
      const auto ms = gpu_->MillisecondsBetween(begin_, end_);
      if (!ms.ok()) return ms.status();
      spent += *ms * 1e-3;
      if (i >= kWarmReplays) times.push_back(*ms * 1e3);
    }
    return times;
  }

  std::shared_ptr<cuda::Gpu> gpu_;
  cuda::StreamHandle stream_ = nullptr;
  cuda::EventHandle begin_ = nullptr;
  cuda::EventHandle end_ = nullptr;
};

// One input set: the problem's data on the host and on the device.
struct InputSet {
  core::ProblemData data;
  std::unique_ptr<DeviceMirror> mirror;
  AttentionRequest request;  // On the device.
};

Status AddSet(const core::Problem& problem, const Device& device, std::vector<InputSet>& sets) {
  Result<core::ProblemData> data = core::BuildProblem(problem);
  if (!data.ok()) return data.status();
  InputSet& set = sets.emplace_back(
      InputSet{std::move(data).value(), std::make_unique<DeviceMirror>(device), {}});
  KVILT_RETURN_IF_ERROR(set.mirror->Upload(set.data.Memory()));
  set.request = set.mirror->Moved(set.data.request(), true);
  return {};
}

// GB/s of plain reads of `bytes` each, one after another out of at least kInputBytes.
Result<double> ReadCeiling(const Device& device, cuda::Gpu& gpu, const Timer& timer,
                           std::int64_t bytes) {
  cuda::KernelSpec spec;
  spec.entry = "read";
  spec.header = "read.cuh";
  spec.threads = 1024;
  const auto kernel = gpu.GetKernel(spec);
  if (!kernel.ok()) return kernel.status();
  bytes = std::max<std::int64_t>(bytes / 16 * 16, 16);
  const std::int64_t count = std::clamp<std::int64_t>(kInputBytes / bytes + 1, 1, kMaxSets);
  Result<Buffer> memory = Buffer::Allocate(device, bytes * count + 256);
  if (!memory.ok()) return memory.status();
  KVILT_RETURN_IF_ERROR(gpu.Fill(reinterpret_cast<cuda::DevicePointer>(memory->data()), 1,
                                 bytes * count + 256, nullptr));
  KVILT_RETURN_IF_ERROR(gpu.WaitForStream(nullptr));
  auto times = timer.Replay(
      [&]() -> Status {
        for (std::int64_t i = 0; i < count; ++i) {
          contract::ReadArgs args;
          args.data = reinterpret_cast<const contract::u32*>(memory->data() + i * bytes);
          args.words = bytes / 4;
          args.sink = reinterpret_cast<contract::u32*>(memory->data() + bytes * count);
          KVILT_RETURN_IF_ERROR(gpu.Launch(**kernel, {gpu.spec().slots * 2, 1024, 0, false},
                                           timer.stream(), &args, sizeof(args)));
        }
        return {};
      },
      0);
  if (!times.ok()) return times.status();
  return static_cast<double>(bytes) * static_cast<double>(count) /
         Median(std::move(times).value()) * 1e-3;
}

}  // namespace

Result<GpuTimes> MeasureOnGpu(const core::Problem& problem, const Device& device,
                              const BenchOptions& options,
                              const std::function<void(std::string_view)>& stage) {
  auto gpu = cuda::Gpu::Open(device.id().index);
  if (!gpu.ok()) return gpu.status();
  auto timer = Timer::Create(*gpu);
  if (!timer.ok()) return timer.status();
  const Stream stream{(*timer)->stream()};

  stage("building the data");
  std::vector<InputSet> sets;
  KVILT_RETURN_IF_ERROR(AddSet(problem, device, sets));
  PlanOptions plan_options = sets[0].data.plan_options();
  plan_options.tile = options.tile;
  Result<Plan> plan = MakePlan(sets[0].request, device.spec(), plan_options);
  if (!plan.ok()) return plan.status();
  GpuTimes result;
  result.plan = *plan;
  stage("compiling");
  Result<PreparedPlan> prepared = Prepare(device, std::move(plan).value());
  if (!prepared.ok()) return prepared.status();
  Result<Buffer> memory = Buffer::Allocate(device, result.plan.workspace_bytes);
  if (!memory.ok()) return memory.status();
  const std::span<std::byte> workspace(memory->data(),
                                       static_cast<std::size_t>(memory->size_bytes()));

  stage("checking against float64");
  KVILT_RETURN_IF_ERROR(Run(*prepared, sets[0].request, workspace, stream));
  KVILT_RETURN_IF_ERROR(Synchronize(device, stream));
  KVILT_RETURN_IF_ERROR(sets[0].mirror->Download());
  result.check = CheckSample(sets[0].data.request(), result.plan, options.check_budget,
                             problem.data != core::DataForm::kExtreme);
  if (const std::string found = result.check.Problem(); !found.empty()) {
    return Status::Runtime("check", found);
  }

  stage("building input sets");
  const std::int64_t bytes = std::max<std::int64_t>(result.plan.kv_bytes, 1);
  const std::int64_t count = std::clamp<std::int64_t>(
      std::min((kInputBytes + bytes - 1) / bytes, options.input_bytes_limit / bytes), 1, kMaxSets);
  core::Problem other = problem;
  while (static_cast<std::int64_t>(sets.size()) < count) {
    ++other.seed;
    KVILT_RETURN_IF_ERROR(AddSet(other, device, sets));
  }
  stage("reading, for the ceiling");
  const auto ceiling = ReadCeiling(device, **gpu, **timer, bytes);
  if (!ceiling.ok()) return ceiling.status();
  result.ceiling_gb_per_s = *ceiling;
  stage("timing");
  auto times = (*timer)->Replay(
      [&]() -> Status {
        for (const InputSet& set : sets) {
          KVILT_RETURN_IF_ERROR(Run(*prepared, set.request, workspace, stream));
        }
        return {};
      },
      options.seconds);
  if (!times.ok()) return times.status();
  for (const double us : *times) result.us.push_back(us / static_cast<double>(sets.size()));
  result.input_sets = static_cast<std::int64_t>(sets.size());
  return result;
}

}  // namespace kvilt::cli
