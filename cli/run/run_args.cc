#include "cli/run/run_args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/check.h"

namespace kvilt::cli::run {
namespace {

constexpr std::int64_t kMostPageSize = std::int64_t{1} << 40;
constexpr const char* kCacheDTypes = "f32, bf16, f16, e4m3, e5m2, nvfp4";

// Adds the options of one group of the help.
class Group {
 public:
  Group(CLI::App& command, std::string name) : command_(command), name_(std::move(name)) {}

  template <class T>
  CLI::Option* Add(const std::string& name, T& value, const std::string& type,
                   const std::string& help) {
    return InGroup(command_.add_option(name, value, help)->type_name(type));
  }
  // The value is one of a few names.
  template <class T>
  CLI::Option* AddName(const std::string& name, T& value, std::vector<std::string> names,
                       const std::string& help) {
    return Add(name, value, "NAME", help)->check(CLI::IsMember(std::move(names)));
  }
  CLI::Option* AddFlag(const std::string& name, bool& value, const std::string& help) {
    return InGroup(command_.add_flag(name, value, help));
  }

 private:
  CLI::Option* InGroup(CLI::Option* option) {
    return name_.empty() ? option : option->group(name_);
  }

  CLI::App& command_;
  std::string name_;  // Empty: the command's own options.
};

void AddStoreOptions(CLI::App& command, RunArgs& args) {
  Group group(command, "Storing K and V");
  StoreArgs& store = args.store;
  // What is given is remembered, so that it can be refused where it would do nothing.
  const auto remember = [&args](CLI::Option* option) {
    return option->each([&args, name = option->get_name()](const std::string&) {
      args.store.given.push_back(name);
    });
  };
  remember(group.Add("--kv-dtype", store.kv_dtype, "DTYPE",
                     fmt::format("Store K and V in this dtype first: {}", kCacheDTypes)));
  remember(group.Add("--k-dtype", store.k_dtype, "DTYPE", "K alone"));
  remember(group.Add("--v-dtype", store.v_dtype, "DTYPE", "V alone"));
  remember(group.Add("--page-size", store.page_size, "N", "Tokens a page; 0 = ragged"))
      ->check(CLI::Range(std::int64_t{0}, kMostPageSize))
      ->capture_default_str();
  remember(group.AddName("--layout", store.layout, {"NHD", "HND"}, "NHD or HND"))
      ->capture_default_str();
  remember(group.AddName("--scale-layout", store.scale_layout, {"linear", "interleaved4"},
                         "Of V in nvfp4: linear or interleaved4"))
      ->capture_default_str();
  remember(group.Add("--global", store.global, "WORD|X",
                     "Decode multiplier of quantized sides: auto (from the largest magnitude), "
                     "heads (the same, one per KV head), or a number"))
      ->capture_default_str();
  remember(group.AddFlag("--four-over-six", store.four_over_six,
                         "NVFP4: also try amax / 4 per block, keep the better"));
  group.Add("--save-cache", store.save_cache, "FILE",
            "Also write the stored cache to this file (one --cache or --k/--v)");
}

void AddRequestOptions(CLI::App& command, RequestArgs& args) {
  Group group(command, "Attention (each replaces what the file of --q says)");
  group.AddName("--mask", args.mask, {"none", "causal", "custom", "tree"},
                "none, causal, custom, tree (the last two: tensor mask_bits)");
  group.Add("--window-left", args.window_left, "N", "Keys before the row's position; -1 = all");
  group.Add("--window-right", args.window_right, "N", "Keys after it; -1 = all");
  group.Add("--sm-scale", args.sm_scale, "X", "Softmax scale; default 1 / sqrt(head_dim)");
  group.Add("--q-scale", args.q_scale, "X", "Decode multiplier of Q");
  group.Add("--soft-cap", args.soft_cap, "X", "c of c tanh(x / c); 0 = off");
  group.AddFlag("--bias-before-cap", args.bias_before_cap, "ALiBi before the soft cap");
  group.Add("--rope-theta", args.rope_theta, "X", "Rotate Q and K in the kernel, with this base");
  group.AddName("--rope-pairing", args.rope_pairing, {"half", "interleaved"},
                "half or interleaved");
  group.AddName("--rope-frequency", args.rope_frequency, {"rotary", "proportional"},
                "rotary or proportional");
  group.Add("--rope-dim", args.rope_dim, "N", "Elements that rotate; 0 = all");
  group.Add("--rope-scale", args.rope_scale, "X", "Divides the angles");
  group.AddFlag("--no-rope", args.no_rope, "Do not rotate, whatever the file says");
  group.AddName("--lse-base", args.lse_base, {"natural", "two"}, "natural or two");
}

void AddPlanOptions(CLI::App& command, PlanArgs& args) {
  Group group(command, "Plan");
  group
      .Add("--split", args.split, "WORD|N",
           "auto, off, or N: a split every N keys, same bits in any batch")
      ->capture_default_str();
  group
      .AddName("--accuracy", args.accuracy, {"normal", "near_exact", "f32"},
               "normal, near_exact, f32")
      ->capture_default_str();
  group
      .Add("--workspace-limit", args.workspace_limit_bytes, "N",
           "Bytes for partials; -1 = no limit")
      ->capture_default_str();
  group.Add("--path", args.path, "NAME", "This path or a refusal, such as cpu/f32");
  group.AddFlag("--no-cascade", args.no_cascade, "Do not read shared segments once for all owners");
  group.AddFlag("--no-check-pages", args.no_check_pages, "Do not validate page ids at plan time");
}

MaskMode MaskOf(std::string_view name) {
  if (name == "none") return MaskMode::kNone;
  if (name == "causal") return MaskMode::kCausal;
  return name == "custom" ? MaskMode::kCustom : MaskMode::kTree;
}

Status ApplyRope(const RequestArgs& args, AttentionRequest& request) {
  const bool any = args.rope_theta || args.rope_pairing || args.rope_frequency || args.rope_dim ||
                   args.rope_scale;
  if (args.no_rope) {
    if (any) return Status::Invalid("--no-rope", "given beside other --rope options");
    request.rope.reset();
    // Positions are for RoPE and windows; plans refuse them where they would do nothing.
    if (request.window_left < 0 && request.window_right < 0) request.q_positions = IndexArray();
    return Status::Ok();
  }
  if (!any) return Status::Ok();
  if (!request.rope && !args.rope_theta) {
    return Status::Invalid(
        "--rope-theta",
        "missing: the file of --q names no RoPE that the other --rope options could change");
  }
  if (!request.rope) request.rope = Rope();
  Rope& rope = *request.rope;
  if (args.rope_theta) rope.theta = *args.rope_theta;
  if (args.rope_pairing) {
    rope.pairing = *args.rope_pairing == "half" ? RopePairing::kHalf : RopePairing::kInterleaved;
  }
  if (args.rope_frequency) {
    rope.frequency =
        *args.rope_frequency == "rotary" ? RopeFrequency::kRotary : RopeFrequency::kProportional;
  }
  if (args.rope_dim) rope.rotary_dim = *args.rope_dim;
  if (args.rope_scale) rope.scale = *args.rope_scale;
  return Status::Ok();
}

}  // namespace

void AddRunOptions(CLI::App& command, RunArgs& args) {
  Group group(command, "");
  group.Add("--q", args.q, "FILE",
            "Queries: a file with the tensor q (default: the first --cache)");
  group
      .Add("--cache", args.caches, "FILE",
           "A cache; several are the segments of the requests, in order")
      ->allow_extra_args(false);
  group.Add("--k", args.k, "FILE[:TENSOR]",
            "Instead of --cache: keys [tokens, kv_heads, head_dim] in f32, bf16 or f16");
  group.Add("--v", args.v, "FILE[:TENSOR]", "Values, likewise");
  group.Add("--out", args.out, "FILE", "Where the tensors out and lse go")->required();
  group
      .Add("--out-dtype", args.out_dtype, "DTYPE", "f32, bf16 or f16; default: that of q, or bf16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  group.AddFlag("--no-lse", args.no_lse, "Do not compute lse");
  group.Add("--repeat", args.repeat, "N", "Run so often and give the median time")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  group.AddFlag("--check", args.check, "Compare with the float64 oracle on a sample of rows");
  AddDeviceOptions(command, args.device);
  AddJsonOption(command, args.json);
  AddStoreOptions(command, args);
  AddRequestOptions(command, args.request);
  AddPlanOptions(command, args.plan);
}

Status ApplyRequestArgs(const RequestArgs& args, AttentionRequest& request) {
  if (args.mask) request.mask = MaskOf(*args.mask);
  if (args.window_left) request.window_left = *args.window_left;
  if (args.window_right) request.window_right = *args.window_right;
  if (args.sm_scale) request.sm_scale = *args.sm_scale;
  if (args.q_scale) request.q_scale = *args.q_scale;
  if (args.soft_cap) request.logits_soft_cap = *args.soft_cap;
  if (args.bias_before_cap) request.bias_before_cap = true;
  if (args.lse_base) request.lse_base = *args.lse_base == "two" ? LseBase::kTwo : LseBase::kNatural;
  KVILT_RETURN_IF_ERROR(ApplyRope(args, request));
  if (request.mask == MaskMode::kUnset) {
    return Status::Invalid(
        "--mask",
        "missing, and the file of --q has no kvilt.mask; accepted: none, causal, custom, tree");
  }
  return Status::Ok();
}

Result<PlanOptions> PlanOptionsOf(const PlanArgs& args) {
  PlanOptions options;
  if (args.split == "off") {
    options.split = SplitMode::kOff;
  } else if (args.split != "auto") {
    const char* end = args.split.data() + args.split.size();
    const auto [stop, error] = std::from_chars(args.split.data(), end, options.fixed_split_rows);
    if (error != std::errc() || stop != end || options.fixed_split_rows < 1) {
      return Status::Invalid(
          "--split", fmt::format("'{}', accepted: auto, off, or a number >= 1", args.split));
    }
    options.split = SplitMode::kFixed;
  }
  options.accuracy = args.accuracy == "f32"          ? Accuracy::kF32
                     : args.accuracy == "near_exact" ? Accuracy::kNearExact
                                                     : Accuracy::kNormal;
  options.workspace_limit_bytes = args.workspace_limit_bytes;
  options.path = args.path;
  options.allow_cascade = !args.no_cascade;
  options.check_pages = !args.no_check_pages;
  return options;
}

}  // namespace kvilt::cli::run
