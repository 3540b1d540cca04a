#include "src/cuda/attention.h"

#include <algorithm>
#include <utility>

#include "src/core/check.h"

namespace kvilt::cuda {
namespace {

// Blocks of the merge for each SM: four warps each, so half of what an SM holds.
constexpr int kMergeBlocksPerSm = 8;

StreamHandle DefaultStream() { return nullptr; }

}  // namespace

KernelSpec AttentionKernel(const contract::TileShape& tile) {
  KernelSpec spec;
  spec.entry = "attention";
  spec.header = "attention.cuh";
  spec.arguments = TileText(tile);
  spec.threads = contract::Threads(tile);
  spec.min_blocks = tile.blocks_per_sm;
  return spec;
}

KernelSpec MergeKernel() {
  KernelSpec spec;
  spec.entry = "merge";
  spec.header = "merge.cuh";
  spec.threads = contract::kMergeThreads;
  return spec;
}

// ---------------------------------------------------------------- memory

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(pointer_, other.pointer_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  if (pointer_ != 0) gpu_->Free(pointer_);
}
Result<DeviceMemory> DeviceMemory::Allocate(std::shared_ptr<Gpu> gpu, std::int64_t bytes) {
  const Result<DevicePointer> pointer = gpu->Alloc(bytes);
  if (!pointer.ok()) return pointer.status();
  DeviceMemory memory;
  memory.gpu_ = std::move(gpu);
  memory.pointer_ = *pointer;
  memory.size_bytes_ = bytes;
  return memory;
}

// ---------------------------------------------------------------- tables

TableImages::~TableImages() {
  for (const auto& image : images_) {
    if (image->event != nullptr) gpu_->DestroyEvent(image->event);
  }
}

Result<TableImages::Image*> TableImages::Get(std::span<const std::byte> content,
                                             std::span<const std::size_t> parts,
                                             StreamHandle stream, bool capturing) {
  for (const auto& image : images_) {
    if (image->stream == stream && std::ranges::equal(image->content, content)) return image.get();
  }
  if (capturing) {
    return Status::Precondition(
        "stream",
        "capturing, and these host tables are not on the device yet; run the request "
        "once before the capture");
  }
  Result<Image*> idle = Idle(content.size());
  if (!idle.ok()) return idle;
  KVILT_RETURN_IF_ERROR(Fill(**idle, content, parts, stream));
  return idle;
}

Result<TableImages::Image*> TableImages::Idle(std::size_t bytes) {
  for (const auto& image : images_) {
    if (image->captured || image->memory.size_bytes() < static_cast<std::int64_t>(bytes)) continue;
    Result<bool> done = gpu_->IsDone(image->event);
    if (!done.ok()) return done.status();
    if (*done) return image.get();
  }
  auto image = std::make_unique<Image>();
  // Room for tables that grow a little.
  const auto room = static_cast<std::int64_t>(bytes + bytes / 2 + 256);
  Result<DeviceMemory> memory = DeviceMemory::Allocate(gpu_, room);
  if (!memory.ok()) return memory.status();
  image->memory = std::move(memory).value();
  const Result<EventHandle> event = gpu_->CreateEvent(false);
  if (!event.ok()) return event.status();
  image->event = *event;
  images_.push_back(std::move(image));
  return images_.back().get();
}

Status TableImages::Fill(Image& image, std::span<const std::byte> content,
                         std::span<const std::size_t> parts, StreamHandle stream) {
  image.content.clear();  // Nobody's, should the copy fail.
  const std::span<const std::byte> copied[] = {content};
  KVILT_RETURN_IF_ERROR(ring_.Upload(image.memory.pointer(), copied, stream));
  image.content.assign(content.begin(), content.end());
  image.parts.assign(parts.begin(), parts.end());
  image.stream = stream;
  return {};
}

Status TableImages::Done(Image& image, StreamHandle stream, bool capturing) {
  if (capturing) {
    image.captured = true;
    return {};
  }
  return gpu_->RecordEvent(image.event, stream);
}

bool TableImages::captured() const {
  return std::ranges::any_of(images_, [](const auto& image) { return image->captured; });
}

Status TableImages::Rewrite(std::span<const std::byte> content, std::span<const std::size_t> parts,
                            StreamHandle stream) {
  for (const auto& image : images_) {
    if (!image->captured) continue;
    if (image->memory.size_bytes() < static_cast<std::int64_t>(content.size()) ||
        !std::ranges::equal(image->parts, parts)) {
      return Status::Exhausted("request",
                               "host arrays of other sizes than a captured graph was made with; "
                               "keep page tables in device memory, or capture again");
    }
    const StreamHandle owner = image->stream;
    KVILT_RETURN_IF_ERROR(Fill(*image, content, parts, stream));
    image->stream = owner;
  }
  return {};
}

// ---------------------------------------------------------------- plans

Result<std::unique_ptr<PreparedAttention>> PreparedAttention::Create(
    const std::shared_ptr<Gpu>& gpu, std::span<const std::byte> plan_data) {
  std::unique_ptr<PreparedAttention> prepared(new PreparedAttention(gpu));
  KVILT_RETURN_IF_ERROR(prepared->Init(plan_data));
  return prepared;
}

Status PreparedAttention::Init(std::span<const std::byte> plan_data) {
  const plan::PlanDataView view = plan::ViewPlanData(plan_data);
  for (const contract::LaunchInfo& launch : view.launches) {
    const Result<const Kernel*> kernel = gpu_->GetKernel(AttentionKernel(launch.tile));
    if (!kernel.ok()) return kernel.status();
    steps_.push_back(
        {*kernel,
         {launch.grid, contract::Threads(launch.tile), contract::SmemBytes(launch.tile), false}});
  }
  const Result<const Kernel*> merge = gpu_->GetKernel(MergeKernel());
  if (!merge.ok()) return merge.status();
  merge_ = {*merge, {gpu_->spec().slots * kMergeBlocksPerSm, contract::kMergeThreads, 0, false}};
  const contract::PlanHeader& header = *view.header;
  merges_ = header.total_bytes - header.merges_offset >=
            static_cast<contract::i64>(sizeof(contract::MergeItem));

  Result<DeviceMemory> plan =
      DeviceMemory::Allocate(gpu_, static_cast<std::int64_t>(plan_data.size()));
  if (!plan.ok()) return plan.status();
  plan_ = std::move(plan).value();
  Result<DeviceMemory> error = DeviceMemory::Allocate(gpu_, sizeof(contract::u32));
  if (!error.ok()) return error.status();
  error_ = std::move(error).value();
  KVILT_RETURN_IF_ERROR(gpu_->CopyToDevice(plan_.pointer(), plan_data.data(),
                                           static_cast<std::int64_t>(plan_data.size()),
                                           DefaultStream()));
  KVILT_RETURN_IF_ERROR(gpu_->Fill(error_.pointer(), 0, sizeof(contract::u32), DefaultStream()));
  return gpu_->WaitForStream(DefaultStream());
}

Status PreparedAttention::Update(std::span<const std::byte> plan_data, StreamHandle stream) {
  const auto bytes = static_cast<std::int64_t>(plan_data.size());
  const plan::PlanDataView view = plan::ViewPlanData(plan_data);
  const bool merges = merges_ || !view.merges.empty();
  if (images_.captured() && (bytes > plan_.size_bytes() || merges != merges_)) {
    return Status::Exhausted(
        "plan",
        "a captured graph holds a smaller plan; give PlanOptions::capacity the "
        "largest batch before the capture");
  }
  if (bytes > plan_.size_bytes()) {
    Result<DeviceMemory> plan = DeviceMemory::Allocate(gpu_, bytes);
    if (!plan.ok()) return plan.status();
    plan_ = std::move(plan).value();
  }
  merges_ = merges;
  const std::span<const std::byte> parts[] = {plan_data};
  return ring_.Upload(plan_.pointer(), parts, stream);
}

Status PreparedAttention::Run(contract::AttentionArgs& args, std::byte* workspace,
                              StreamHandle stream) const {
  args.plan = reinterpret_cast<const contract::u8*>(AsPointer(plan_.pointer()));
  args.workspace = reinterpret_cast<contract::u8*>(workspace);
  args.error = reinterpret_cast<contract::u32*>(AsPointer(error_.pointer()));
  for (std::size_t l = 0; l < steps_.size(); ++l) {
    args.launch = static_cast<int>(l);
    KVILT_RETURN_IF_ERROR(
        gpu_->Launch(*steps_[l].kernel, steps_[l].shape, stream, &args, sizeof(args)));
  }
  if (!merges_) return {};
  return gpu_->Launch(*merge_.kernel, merge_.shape, stream, &args, sizeof(args));
}

Result<contract::u32> PreparedAttention::TakeError() {
  contract::u32 word = 0;
  KVILT_RETURN_IF_ERROR(gpu_->CopyToHost(&word, error_.pointer(), sizeof(word), DefaultStream()));
  KVILT_RETURN_IF_ERROR(gpu_->WaitForStream(DefaultStream()));
  if (word == 0) return word;
  KVILT_RETURN_IF_ERROR(gpu_->Fill(error_.pointer(), 0, sizeof(word), DefaultStream()));
  KVILT_RETURN_IF_ERROR(gpu_->WaitForStream(DefaultStream()));
  return word;
}

}  // namespace kvilt::cuda
