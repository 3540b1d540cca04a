#include "cli/run/session.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "cli/bench_measure.h"
#include "kvilt/version.h"
#include "src/core/check.h"
#include "src/core/file.h"

namespace kvilt::cli::run {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Multiply-adds that --check may spend in the oracle: a second or two.
constexpr double kCheckBudget = 4e8;

Status Behind(const std::string& path, const Status& status) {
  return Status(status.code(), path, status.message());
}

// Whether the file is there: a colon may be part of its name.
bool Exists(const std::string& path) { return core::MappedFile::Open(path).ok(); }

// FILE[:TENSOR] in two.
std::pair<std::string, std::string> SplitSpec(const std::string& spec) {
  const std::size_t colon = spec.rfind(':');
  if (colon == std::string::npos || Exists(spec)) return {spec, ""};
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

std::int64_t HeadDim(const CacheSide& side) {
  return side.data.shape[side.data.rank - 1] * (side.data.dtype == DType::kNVFP4 ? 2 : 1);
}

}  // namespace

Status Session::CheckSources() const {
  const bool dense = !args_.k.empty() || !args_.v.empty();
  if (dense == !args_.caches.empty()) {
    return Status::Invalid("--cache", "expected either --cache, once or more, or --k and --v");
  }
  if (dense && (args_.k.empty() || args_.v.empty())) {
    return Status::Invalid(args_.k.empty() ? "--k" : "--v", "missing: --k and --v go together");
  }
  if (args_.q.empty() && dense) return Status::Invalid("--q", "missing");
  const StoreArgs& store = args_.store;
  const bool converts =
      dense || !store.kv_dtype.empty() || !store.k_dtype.empty() || !store.v_dtype.empty();
  if (!converts && !store.given.empty()) {
    return Status::Invalid(store.given.front(),
                           "would do nothing: the cache is used as it is, unless --kv-dtype, "
                           "--k-dtype or --v-dtype asks for another");
  }
  if (!store.save_cache.empty() && args_.caches.size() > 1) {
    return Status::Invalid("--save-cache", "one file, but several caches");
  }
  if (!store.save_cache.empty() && !converts) {
    return Status::Invalid("--save-cache",
                           "would copy the --cache file: give --kv-dtype, --k-dtype or --v-dtype");
  }
  return Status::Ok();
}

Status Session::CheckOutputs() const {
  const std::pair<const char*, std::string> outputs[] = {{"--out", args_.out},
                                                         {"--save-cache", args_.store.save_cache}};
  std::vector<std::pair<const char*, std::string>> taken;
  if (!args_.q.empty()) taken.emplace_back("--q", args_.q);
  for (const std::string& path : args_.caches) taken.emplace_back("--cache", path);
  if (!args_.k.empty()) taken.emplace_back("--k", SplitSpec(args_.k).first);
  if (!args_.v.empty()) taken.emplace_back("--v", SplitSpec(args_.v).first);
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    for (const auto& [other, file] : taken) {
      if (!core::SameFile(path, file)) continue;
      return Status::Invalid(option, fmt::format("'{}' would replace the file of {}, expected "
                                                 "another",
                                                 path, other));
    }
    if (const Status status = core::CheckWritable(path); !status.ok()) {
      return Behind(option, status);
    }
    taken.emplace_back(option, path);
  }
  return Status::Ok();
}

Status Session::LoadQueries() {
  const std::string& path = args_.q.empty() ? args_.caches.front() : args_.q;
  Result<core::TensorFile> file = core::TensorFile::Load(path);
  if (!file.ok()) return file.status();
  files_.push_back(std::move(file).value());
  Result<core::QueryFile> query = core::QueryOf(files_.back());
  if (!query.ok()) return Behind(path, query.status());
  query_ = std::move(query).value();
  request_ = query_.request;
  return ApplyRequestArgs(args_.request, request_);
}

Status Session::StoreRows(const Device& device, const StoreArgs& store, const TensorView& k,
                          const TensorView& v, std::span<const std::int64_t> indptr,
                          std::vector<std::int32_t> owners) {
  Result<StoredCache> stored = Store(device, store, k, v, indptr);
  if (!stored.ok()) return stored.status();
  stored->segment.owners = std::move(owners);
  result_.stored = true;
  for (auto [total, add] : {std::pair(&result_.k_health, &stored->k_health),
                            std::pair(&result_.v_health, &stored->v_health)}) {
    total->nan += add->nan;
    total->infinite += add->infinite;
    total->saturated += add->saturated;
    total->flushed_blocks += add->flushed_blocks;
  }
  stored_.push_back(std::move(stored).value());
  request_.segments.push_back(stored_.back().segment);
  if (args_.store.save_cache.empty()) return Status::Ok();
  return core::SaveCacheFile(args_.store.save_cache, stored_.back().segment);
}

Status Session::LoadCaches(const Device& device) {
  const StoreArgs& store = args_.store;
  const bool converts = !store.kv_dtype.empty() || !store.k_dtype.empty() || !store.v_dtype.empty();
  for (const std::string& path : args_.caches) {
    const auto start = Clock::now();
    Result<core::CacheFile> cache = core::LoadCacheFile(path);
    if (!cache.ok()) return cache.status();
    result_.times.load_us += MicrosSince(start);
    Segment segment = std::move(cache->segment);
    files_.push_back(std::move(cache->file));
    if (!converts) {
      request_.segments.push_back(std::move(segment));
      continue;
    }
    const auto append_start = Clock::now();
    const std::vector<std::int32_t> owners = std::exchange(segment.owners, {});
    const Result<DenseKv> dense = Decode(device, segment);
    if (!dense.ok()) return Behind(path, dense.status());
    StoreArgs side_args = store;  // A side that is not named keeps its dtype.
    if (side_args.kv_dtype.empty() && side_args.k_dtype.empty())
      side_args.k_dtype = Name(segment.k().data.dtype);
    if (side_args.kv_dtype.empty() && side_args.v_dtype.empty())
      side_args.v_dtype = Name(segment.v().data.dtype);
    KVILT_RETURN_IF_ERROR(StoreRows(device, side_args, dense->k, dense->v, dense->indptr, owners));
    result_.times.append_us += MicrosSince(append_start);
  }
  return Status::Ok();
}

Result<TensorView> Session::LoadTensor(const char* option, const std::string& spec,
                                       const char* fallback) {
  auto [path, name] = SplitSpec(spec);
  Result<core::TensorFile> file = core::TensorFile::Load(path);
  if (!file.ok()) return file.status();
  files_.push_back(std::move(file).value());
  const core::TensorFile& loaded = files_.back();
  if (name.empty())
    name = loaded.Find(fallback).defined() ? fallback : std::string(fallback) + ".data";
  const TensorView view = loaded.Find(name);
  if (!view.defined()) {
    return Status::Invalid(
        option, fmt::format("no tensor '{}' in {}; name one as FILE:TENSOR", name, path));
  }
  return view;
}

Status Session::LoadDense(const Device& device) {
  const auto start = Clock::now();
  const Result<TensorView> k = LoadTensor("--k", args_.k, "k");
  if (!k.ok()) return k.status();
  const core::TensorFile& k_file = files_.back();
  const Result<IndexArray> indptr = k_file.FindIndex("indptr");
  if (!indptr.ok()) return indptr.status();
  const Result<TensorView> v = LoadTensor("--v", args_.v, "v");
  if (!v.ok()) return v.status();
  result_.times.load_us += MicrosSince(start);

  std::vector<std::int64_t> rows = {0, k->shape[0]};
  if (indptr->defined()) {
    rows.clear();
    for (std::int64_t i = 0; i < indptr->size; ++i) {
      const std::int64_t value = (*indptr)[i];
      if (value < (i == 0 ? 0 : rows.back()) || (i == 0 && value != 0)) {
        return Status::Invalid(fmt::format("indptr[{}]", i),
                               fmt::format("{}, expected to begin at 0 and never decrease", value));
      }
      rows.push_back(value);
    }
    if (rows.empty()) return Status::Invalid("indptr", "empty, expected [requests + 1]");
  }
  const auto append_start = Clock::now();
  KVILT_RETURN_IF_ERROR(StoreRows(device, args_.store, *k, *v, rows, {}));
  result_.times.append_us += MicrosSince(append_start);
  return Status::Ok();
}

Status Session::AllocateOutputs() {
  const TensorView& q = request_.q;
  if (q.rank != 3)
    return Status::Invalid("q", fmt::format("rank {}, expected [rows, q_heads, head_dim]", q.rank));
  DType dtype = q.dtype == DType::kF32 || q.dtype == DType::kF16 ? q.dtype : DType::kBF16;
  if (!args_.out_dtype.empty()) dtype = *ParseDType(args_.out_dtype);
  const std::int64_t head_dim = HeadDim(request_.segments.back().v());
  std::int64_t elements = q.shape[0];
  if (__builtin_mul_overflow(elements, q.shape[1], &elements) ||
      __builtin_mul_overflow(elements, 4 * head_dim, &elements)) {
    return Status::Invalid("q.shape", "out would need more than 2^63 bytes");
  }
  out_memory_ = core::AlignedMemory(static_cast<std::size_t>(elements));
  lse_memory_ = core::AlignedMemory(static_cast<std::size_t>(q.shape[0] * q.shape[1] * 4));
  if (out_memory_.data() == nullptr || lse_memory_.data() == nullptr) {
    return Status::Exhausted("out", fmt::format("no memory for {} bytes", elements));
  }
  out_memory_.Fill(0xFF);
  lse_memory_.Fill(0xFF);
  request_.out = TensorView::Dense(out_memory_.data(), dtype, {q.shape[0], q.shape[1], head_dim});
  if (!args_.no_lse) {
    request_.lse = TensorView::Dense(lse_memory_.data(), DType::kF32, {q.shape[0], q.shape[1]});
  }
  result_.out = request_.out;
  result_.lse = request_.lse;
  return Status::Ok();
}

Status Session::RunPlan(const Device& device) {
  const Result<PlanOptions> options = PlanOptionsOf(args_.plan);
  if (!options.ok()) return options.status();
  auto start = Clock::now();
  Result<Plan> plan = MakePlan(request_, device.spec(), *options);
  if (!plan.ok()) return plan.status();
  result_.times.plan_us = MicrosSince(start);
  result_.plan = std::move(plan).value();

  start = Clock::now();
  const Result<PreparedPlan> prepared = Prepare(device, result_.plan);
  if (!prepared.ok()) return prepared.status();
  const Result<Buffer> workspace = Buffer::Allocate(device, result_.plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  result_.times.prepare_us = MicrosSince(start);

  std::vector<double> times;
  for (std::int64_t i = 0; i < args_.repeat; ++i) {
    start = Clock::now();
    KVILT_RETURN_IF_ERROR(
        Run(*prepared, request_,
            {workspace->data(), static_cast<std::size_t>(workspace->size_bytes())}));
    times.push_back(MicrosSince(start));
  }
  result_.times.run_us = Median(std::move(times));
  KVILT_RETURN_IF_ERROR(LastError(*prepared));
  if (args_.check) result_.check = CheckSample(request_, result_.plan, kCheckBudget);
  return Status::Ok();
}

Status Session::Write() {
  std::vector<core::NamedTensor> tensors = {{"out", request_.out}};
  core::Metadata metadata = {{"kvilt.version", std::string(core::kSchemaVersion)},
                             {"producer", "kvilt " KVILT_VERSION}};
  if (request_.lse.defined()) {
    tensors.emplace_back("lse", request_.lse);
    metadata["kvilt.lse_base"] = request_.lse_base == LseBase::kTwo ? "two" : "natural";
    metadata["kvilt.lse_has_sink"] = result_.plan.lse_has_sink ? "true" : "false";
  }
  return core::WriteSafetensors(args_.out, tensors, metadata);
}

Result<RunResult> Session::Execute(const Device& device) {
  KVILT_RETURN_IF_ERROR(CheckSources());
  KVILT_RETURN_IF_ERROR(CheckOutputs());
  auto start = Clock::now();
  KVILT_RETURN_IF_ERROR(LoadQueries());
  result_.times.load_us = MicrosSince(start);
  KVILT_RETURN_IF_ERROR(args_.caches.empty() ? LoadDense(device) : LoadCaches(device));
  KVILT_RETURN_IF_ERROR(AllocateOutputs());
  KVILT_RETURN_IF_ERROR(RunPlan(device));
  start = Clock::now();
  KVILT_RETURN_IF_ERROR(Write());
  result_.times.write_us = MicrosSince(start);
  return std::move(result_);
}

}  // namespace kvilt::cli::run
