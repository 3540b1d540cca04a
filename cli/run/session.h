// One `kvilt run`: from files to files, with the time of each stage.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_check.h"
#include "cli/run/run_args.h"
#include "cli/run/store.h"
#include "kvilt/attention.h"
#include "src/core/cache_file.h"
#include "src/core/query_file.h"

namespace kvilt::cli::run {

struct StageTimes {
  double load_us = 0;
  double append_us = 0;
  double plan_us = 0;
  double prepare_us = 0;
  double run_us = 0;  // Median of the repeats.
  double write_us = 0;
};

// What a run found out, for text and JSON.
struct RunResult {
  StageTimes times;
  Plan plan;
  HealthCounters k_health;
  HealthCounters v_health;
  bool stored = false;  // AppendKv ran.
  std::optional<SampleCheck> check;
  TensorView out;  // Dtype and shape of what was written.
  TensorView lse;  // Undefined without.
};

// Owns everything that the request borrows. Not movable.
class Session {
 public:
  explicit Session(const RunArgs& args) : args_(args) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Errors: file errors name the file; others the option, tensor or field.
  Result<RunResult> Execute(const Device& device);

 private:
  Status CheckSources() const;
  // That the outputs can be written, and replace none of the inputs nor each other.
  Status CheckOutputs() const;
  Status LoadQueries();
  Status LoadCaches(const Device& device);
  Status LoadDense(const Device& device);
  Status StoreRows(const Device& device, const StoreArgs& store, const TensorView& k,
                   const TensorView& v, std::span<const std::int64_t> indptr,
                   std::vector<std::int32_t> owners);
  Result<TensorView> LoadTensor(const char* option, const std::string& spec, const char* fallback);
  Status AllocateOutputs();
  Status RunPlan(const Device& device);
  Status Write();

  const RunArgs& args_;
  RunResult result_;
  // Lists, because the request borrows from their elements.
  std::list<core::TensorFile> files_;
  std::list<StoredCache> stored_;
  core::QueryFile query_;
  AttentionRequest request_;
  core::AlignedMemory out_memory_;
  core::AlignedMemory lse_memory_;
};

std::string ToText(const RunArgs& args, const RunResult& result);
std::string ToJson(const RunArgs& args, const RunResult& result);

}  // namespace kvilt::cli::run
