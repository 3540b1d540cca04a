// What the demo found, as plain numbers: written by its parts, read by the terminal and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/machine.h"
#include "cli/report/pictures.h"
#include "kvilt/attention.h"

namespace kvilt::cli::demo {

// (a) One way to keep the capture's keys and values.
struct FormatResult {
  std::string name;
  std::string note;  // "" or what is special, in a few words.
  std::string path;  // That ran.
  // Of one token of one layer, K and V of all KV heads; segments: the mean over the context.
  double data_bytes_per_token = 0;
  double scale_bytes_per_token = 0;
  // SEMANTICS section 4, over all layers: sqrt of the summed squares. f32 output.
  double kernel_error = 0;        // Against float64 on the same dequantized bytes.
  double quantization_error = 0;  // Against float64 on the original bf16.
  double needle_mass = 0;  // On the needle key, by the needle's query and head; mean of layers.
  double us = 0;           // Median of one call: one layer, all queries of the capture.
  HealthCounters health;   // K and V, all layers.

  double bytes_per_token() const { return data_bytes_per_token + scale_bytes_per_token; }
};

// Attention of the needle's query and head over the context, in bins, by the kernel itself.
struct AttentionProfile {
  int layer = 0;
  int head = 0;
  std::int64_t query_position = 0;
  std::int64_t needle_position = 0;
  std::string query_text;  // Excerpts with the token itself in [[ ]].
  std::string key_text;
  double bin_tokens = 0;
  std::vector<double> original;  // Share of the mass per bin, from the bf16 cache.
  std::vector<double> nvfp4;
};

struct CaptureFacts {
  std::string model;
  std::string text;
  std::vector<int> layers;
  std::int64_t context = 0;
  std::int64_t queries = 0;
  std::int64_t judged_queries = 0;  // By float64, of each layer; evenly spaced.
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  double needle_mass = 0;  // Float64 on the original, mean of layers.
};

// (b) One context length.
struct ContextResult {
  std::int64_t tokens = 0;
  double off_us = 0;
  double auto_us = 0;
  std::int64_t items_off = 0;
  std::int64_t items = 0;
  std::int64_t max_splits = 0;
  double error = 0;       // Of split auto against float64 on the same bytes.
  double difference = 0;  // Between the two, relative to the same magnitude.
};
struct DecodeResult {
  std::string format;
  std::vector<ContextResult> contexts;
};

// A plan drawn: request rows with their items, and the items on the threads.
struct PlanResult {
  std::string problem;
  int kv_heads = 0;
  std::int64_t threads = 0;
  SplitSummary split;
  std::vector<report::WorkRow> rows;
  std::vector<report::WorkLane> lanes;
};

// (c) Continuations of one prefix.
struct ForkResult {
  std::int64_t page_size = 0;
  std::int64_t prefix_tokens = 0;
  std::int64_t continuations = 0;
  std::int64_t new_tokens = 0;  // Of each continuation.
  std::int64_t pages_used = 0;
  std::int64_t pages_unshared = 0;  // What separate copies would take.
  std::int64_t pages_copied = 0;    // By copy on write.
  double bytes_per_page = 0;        // One layer.
  bool prefix_unchanged = false;    // Its attention result, bit for bit, before and after.
  bool forks_match = false;         // Their results, bit for bit those of separate copies.
  std::vector<report::PageRow> rows;
};

struct DemoResults {
  std::string command;
  std::string date;
  std::string version;
  Machine machine;
  std::string device;
  std::string path;
  int threads = 0;
  CaptureFacts capture;
  std::vector<FormatResult> formats;  // The first is the unquantized one.
  AttentionProfile profile;
  DecodeResult decode;
  std::vector<PlanResult> plans;
  ForkResult fork;
  double seconds = 0;
};

}  // namespace kvilt::cli::demo
