// Part (a): the capture through caches of several formats, judged against float64.
#include <algorithm>
#include <future>
#include <numeric>
#include <utility>

#include "cli/demo/judge.h"
#include "cli/demo/needle.h"
#include "cli/demo/parts.h"
#include "src/core/check.h"

namespace kvilt::cli::demo {
namespace {

constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kSinkTokens = 64;  // The first tokens, which many queries attend to.

std::vector<Format> AllFormats() {
  constexpr DType kBF16 = DType::kBF16, kE4M3 = DType::kE4M3, kNVFP4 = DType::kNVFP4;
  return {
      {"bf16", "", {{-1, kBF16, kBF16}}, false},
      {"fp8 e4m3", "", {{-1, kE4M3, kE4M3}}, false},
      {"NVFP4", "", {{-1, kNVFP4, kNVFP4}}, false},
      {"NVFP4 4/6", "four_over_six writer", {{-1, kNVFP4, kNVFP4}}, true},
      {"segments",
       "64 in bf16, rest NVFP4",
       {{kSinkTokens, kBF16, kBF16}, {-1, kNVFP4, kNVFP4}},
       false},
  };
}

// The capture's own ragged bf16 cache.
AttentionRequest Original(const Capture& capture) {
  AttentionRequest request = capture.query.request;
  request.segments = {capture.file.segment};
  return request;
}

// Float64 on all requests at once; the kernels are idle meanwhile, so threads are free.
std::vector<oracle::Reference> Judge(const std::vector<Call>& calls, std::int64_t rows) {
  std::vector<std::future<oracle::Reference>> futures;
  futures.reserve(calls.size());
  for (const Call& call : calls) {
    futures.push_back(std::async(
        std::launch::async, [&call, rows] { return oracle::Attention(call.request(), rows); }));
  }
  std::vector<oracle::Reference> references;
  references.reserve(futures.size());
  for (auto& future : futures) references.push_back(future.get());
  return references;
}

// One format over all layers.
struct LayerRuns {
  std::vector<StoredContext> contexts;
  std::vector<Call> calls;
};

Result<LayerRuns> RunLayers(const Device& device, std::span<const Capture> captures,
                            const Format& format) {
  LayerRuns runs;
  for (const Capture& capture : captures) {
    Result<StoredContext> context = Store(device, format, capture.k(), capture.v(), kPageSize);
    if (!context.ok()) return context.status();
    AttentionRequest request = capture.query.request;
    request.segments = context->Segments();
    Result<Call> call = Call::Make(device, std::move(request));
    if (!call.ok()) return call.status();
    KVILT_RETURN_IF_ERROR(call->Run());
    runs.contexts.push_back(std::move(context).value());
    runs.calls.push_back(std::move(call).value());
  }
  return runs;
}

Result<FormatResult> RunFormat(const Device& device, std::span<const Capture> captures,
                               const Format& format,
                               const std::vector<oracle::Reference>& originals,
                               const Effort& effort) {
  Result<LayerRuns> runs = RunLayers(device, captures, format);
  if (!runs.ok()) return runs.status();
  FormatResult result;
  result.name = format.name;
  result.note = format.note;
  result.path = runs->calls.front().plan().path();
  result.data_bytes_per_token = runs->contexts.front().data_bytes_per_token();
  result.scale_bytes_per_token = runs->contexts.front().scale_bytes_per_token();
  for (const StoredContext& context : runs->contexts) {
    result.health.nan += context.health.nan;
    result.health.infinite += context.health.infinite;
    result.health.saturated += context.health.saturated;
    result.health.flushed_blocks += context.health.flushed_blocks;
  }
  const Result<double> us = runs->calls.front().MedianUs(effort.min_runs, effort.seconds);
  if (!us.ok()) return us.status();
  result.us = *us;

  const std::vector<oracle::Reference> same_bytes = Judge(runs->calls, effort.reference_rows);
  ErrorSums kernel, total;
  for (std::size_t i = 0; i < captures.size(); ++i) {
    kernel.AddError(same_bytes[i], runs->calls[i]);
    total.AddError(originals[i], runs->calls[i]);
    const Result<NeedleView> view = LookAtNeedle(device, captures[i], format);
    if (!view.ok()) return view.status();
    result.needle_mass += view->needle / static_cast<double>(captures.size());
  }
  result.kernel_error = kernel.value();
  result.quantization_error = total.value();
  return result;
}

}  // namespace

Effort QuickEffort() {
  Effort effort;
  effort.min_runs = 3;
  effort.seconds = 0;
  effort.reference_rows = 8;
  effort.contexts = {2048, 8192, 131072};
  return effort;
}

CaptureFacts Describe(std::span<const Capture> captures, const Effort& effort) {
  const Capture& first = captures.front();
  CaptureFacts facts;
  facts.model = first.model;
  facts.text = first.text;
  facts.context = first.tokens();
  facts.queries = first.queries();
  facts.judged_queries =
      effort.reference_rows > 0 ? std::min(effort.reference_rows, facts.queries) : facts.queries;
  facts.q_heads = static_cast<int>(first.q_heads());
  facts.kv_heads = static_cast<int>(first.kv_heads());
  facts.head_dim = static_cast<int>(first.head_dim());
  for (const Capture& capture : captures) {
    facts.layers.push_back(static_cast<int>(capture.layer));
    facts.needle_mass += capture.needle.mass / static_cast<double>(captures.size());
  }
  return facts;
}

Result<std::vector<FormatResult>> RunFormats(const Device& device,
                                             std::span<const Capture> captures,
                                             const Effort& effort, const Stage& stage) {
  stage("float64 on the original capture");
  std::vector<Call> originals;
  for (const Capture& capture : captures) {
    Result<Call> call = Call::Make(device, Original(capture));
    if (!call.ok()) return call.status();
    originals.push_back(std::move(call).value());
  }
  const std::vector<oracle::Reference> references = Judge(originals, effort.reference_rows);
  std::vector<FormatResult> results;
  for (const Format& format : AllFormats()) {
    stage(format.name);
    Result<FormatResult> result = RunFormat(device, captures, format, references, effort);
    if (!result.ok()) return result.status();
    results.push_back(std::move(result).value());
  }
  return results;
}

}  // namespace kvilt::cli::demo
