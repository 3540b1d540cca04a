// The options of `kvilt run`, and what they make of a request and a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "kvilt/plan.h"
#include "kvilt/request.h"

namespace CLI {
class App;
}

namespace kvilt::cli::run {

// How K and V are stored before attention; absent dtypes keep the source's.
struct StoreArgs {
  std::string kv_dtype;
  std::string k_dtype;
  std::string v_dtype;
  std::int64_t page_size = 16;  // 0 = ragged.
  std::string layout = "HND";
  std::string scale_layout = "linear";
  std::string global = "auto";
  bool four_over_six = false;
  std::string save_cache;
  std::vector<std::string> given;  // The options of these that the command line held.
};

// Each replaces what the file of the queries says.
struct RequestArgs {
  std::optional<std::string> mask;
  std::optional<std::int64_t> window_left;
  std::optional<std::int64_t> window_right;
  std::optional<float> sm_scale;
  std::optional<float> q_scale;
  std::optional<float> soft_cap;
  bool bias_before_cap = false;
  std::optional<double> rope_theta;
  std::optional<std::string> rope_pairing;
  std::optional<std::string> rope_frequency;
  std::optional<int> rope_dim;
  std::optional<double> rope_scale;
  bool no_rope = false;
  std::optional<std::string> lse_base;
};

struct PlanArgs {
  std::string split = "auto";
  std::string accuracy = "normal";
  std::int64_t workspace_limit_bytes = -1;
  std::string path;
  bool no_cascade = false;
  bool no_check_pages = false;
};

struct RunArgs {
  std::string q;
  std::vector<std::string> caches;
  std::string k;
  std::string v;
  std::string out;
  std::string out_dtype;
  bool no_lse = false;
  StoreArgs store;
  RequestArgs request;
  PlanArgs plan;
  DeviceArgs device;
  std::int64_t repeat = 1;
  bool check = false;
  bool json = false;
};

void AddRunOptions(CLI::App& command, RunArgs& args);

// Errors: kInvalidArgument, naming the option, the value and what is accepted.
Status ApplyRequestArgs(const RequestArgs& args, AttentionRequest& request);
Result<PlanOptions> PlanOptionsOf(const PlanArgs& args);

}  // namespace kvilt::cli::run
