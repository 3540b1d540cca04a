#include "cli/run/run_args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <span>
#include <string_view>

#include "src/core/check.h"

namespace kvilt::cli::run {
namespace {

constexpr const char* kCacheDTypes = "f32, bf16, f16, e4m3, e5m2, nvfp4";

// An option that is remembered as given, so that it can be refused where it would do nothing.
template <class T>
CLI::Option* AddStore(CLI::App& command, RunArgs& args, const std::string& name, T& value,
                      const std::string& help) {
  return command.add_option(name, value, help)
      ->group("Storing K and V")
      ->each([&args, name](const std::string&) { args.store.given.push_back(name); });
}

void AddStoreOptions(CLI::App& command, RunArgs& args) {
  StoreArgs& store = args.store;
  AddStore(command, args, "--kv-dtype", store.kv_dtype,
           fmt::format("Store K and V in this dtype first: {}", kCacheDTypes))
      ->type_name("DTYPE");
  AddStore(command, args, "--k-dtype", store.k_dtype, "K alone")->type_name("DTYPE");
  AddStore(command, args, "--v-dtype", store.v_dtype, "V alone")->type_name("DTYPE");
  AddStore(command, args, "--page-size", store.page_size, "Tokens a page; 0 = ragged")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddStore(command, args, "--layout", store.layout, "NHD or HND")
      ->type_name("NAME")
      ->check(CLI::IsMember({"NHD", "HND"}))
      ->capture_default_str();
  AddStore(command, args, "--scale-layout", store.scale_layout,
           "Of V in nvfp4: linear or interleaved4")
      ->type_name("NAME")
      ->check(CLI::IsMember({"linear", "interleaved4"}))
      ->capture_default_str();
  AddStore(command, args, "--global", store.global,
           "Decode multiplier of quantized sides: auto (from the largest magnitude), heads (the "
           "same, one "
           "per KV head), or a number")
      ->type_name("WORD|X")
      ->capture_default_str();
  command
      .add_flag("--four-over-six", store.four_over_six,
                "NVFP4: also try amax / 4 per block, keep the better")
      ->group("Storing K and V")
      ->each([&args](const std::string&) { args.store.given.emplace_back("--four-over-six"); });
  command
      .add_option("--save-cache", store.save_cache,
                  "Also write the stored cache to this file (one --cache or --k/--v)")
      ->type_name("FILE")
      ->group("Storing K and V");
}

void AddRequestOptions(CLI::App& command, RequestArgs& args) {
  const std::string group = "Attention (each replaces what the file of --q says)";
  command
      .add_option("--mask", args.mask,
                  "none, causal, custom, tree (the last two: tensor mask_bits)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"none", "causal", "custom", "tree"}))
      ->group(group);
  command.add_option("--window-left", args.window_left, "Keys before the row's position; -1 = all")
      ->type_name("N")
      ->group(group);
  command.add_option("--window-right", args.window_right, "Keys after it; -1 = all")
      ->type_name("N")
      ->group(group);
  command.add_option("--sm-scale", args.sm_scale, "Softmax scale; default 1 / sqrt(head_dim)")
      ->type_name("X")
      ->group(group);
  command.add_option("--q-scale", args.q_scale, "Decode multiplier of Q")
      ->type_name("X")
      ->group(group);
  command.add_option("--soft-cap", args.soft_cap, "c of c tanh(x / c); 0 = off")
      ->type_name("X")
      ->group(group);
  command.add_flag("--bias-before-cap", args.bias_before_cap, "ALiBi before the soft cap")
      ->group(group);
  command
      .add_option("--rope-theta", args.rope_theta, "Rotate Q and K in the kernel, with this base")
      ->type_name("X")
      ->group(group);
  command.add_option("--rope-pairing", args.rope_pairing, "half or interleaved")
      ->type_name("NAME")
      ->check(CLI::IsMember({"half", "interleaved"}))
      ->group(group);
  command.add_option("--rope-frequency", args.rope_frequency, "rotary or proportional")
      ->type_name("NAME")
      ->check(CLI::IsMember({"rotary", "proportional"}))
      ->group(group);
  command.add_option("--rope-dim", args.rope_dim, "Elements that rotate; 0 = all")
      ->type_name("N")
      ->group(group);
  command.add_option("--rope-scale", args.rope_scale, "Divides the angles")
      ->type_name("X")
      ->group(group);
  command.add_flag("--no-rope", args.no_rope, "Do not rotate, whatever the file says")
      ->group(group);
  command.add_option("--lse-base", args.lse_base, "natural or two")
      ->type_name("NAME")
      ->check(CLI::IsMember({"natural", "two"}))
      ->group(group);
}

void AddPlanOptions(CLI::App& command, PlanArgs& args) {
  const std::string group = "Plan";
  command
      .add_option("--split", args.split,
                  "auto, off, or N: a split every N keys, same bits in any batch")
      ->type_name("WORD|N")
      ->capture_default_str()
      ->group(group);
  command.add_option("--accuracy", args.accuracy, "normal, near_exact, f32")
      ->type_name("NAME")
      ->check(CLI::IsMember({"normal", "near_exact", "f32"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--workspace-limit", args.workspace_limit_bytes,
                  "Bytes for partials; -1 = no limit")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command.add_option("--path", args.path, "This path or a refusal, such as cpu/f32")
      ->type_name("NAME")
      ->group(group);
  command
      .add_flag("--no-cascade", args.no_cascade, "Do not read shared segments once for all owners")
      ->group(group);
  command
      .add_flag("--no-check-pages", args.no_check_pages, "Do not validate page ids at plan time")
      ->group(group);
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
  command
      .add_option("--q", args.q, "Queries: a file with the tensor q (default: the first --cache)")
      ->type_name("FILE");
  command
      .add_option("--cache", args.caches,
                  "A cache; several are the segments of the requests, in order")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      .add_option("--k", args.k,
                  "Instead of --cache: keys [tokens, kv_heads, head_dim] in f32, bf16 or f16")
      ->type_name("FILE[:TENSOR]");
  command.add_option("--v", args.v, "Values, likewise")->type_name("FILE[:TENSOR]");
  command.add_option("--out", args.out, "Where the tensors out and lse go")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--out-dtype", args.out_dtype, "f32, bf16 or f16; default: that of q, or bf16")
      ->type_name("DTYPE")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command.add_flag("--no-lse", args.no_lse, "Do not compute lse");
  command.add_option("--repeat", args.repeat, "Run so often and give the median time")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_flag("--check", args.check, "Compare with the float64 oracle on a sample of rows");
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
