// For tests of RunAttention: builds operands and plan lists by hand, with everything that must not
// be read filled with 0xFF (NaN in every format), and judges results by plain loops in double.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "src/cpu/aligned_buffer.h"
#include "src/cpu/run_attention.h"

namespace kvilt::cpu {

struct SideOptions {
  contract::Format format = contract::Format::kBF16;
  bool nhd = false;
  bool interleaved4 = false;
  i64 row_pad_bytes = 0;
  i64 page_pad_bytes = 0;
  std::vector<float> global = {1.0f};  // One, or one per KV head.
};

struct SegmentOptions {
  SideOptions k;
  SideOptions v;
  i64 page_size = 16;
  contract::TableKind table = contract::TableKind::kCsr;
  bool shared = false;
  std::vector<i64> lengths;  // Per request; of a shared segment the same for all.
};

struct AttentionOptions {
  std::vector<i64> q_len = {1};
  std::vector<SegmentOptions> segments;
  int q_heads = 4;
  int kv_heads = 2;
  int dim_qk = 64;
  int dim_vo = 64;
  contract::Format q_format = contract::Format::kBF16;
  contract::Format out_format = contract::Format::kF32;
  bool lse_base_two = false;
  float sigma = 0.9f;  // Of the scores.
  float soft_cap = 0.0f;
  bool alibi = false;
  float alibi_slope = -0.02f;  // Of head h times h + 1.
  bool alibi_row_index = false;
  bool bias_before_cap = false;
  contract::Mask mask = contract::Mask::kNone;
  std::function<bool(i64 request, i64 i, i64 j)> mask_bit;  // kCustom; kTree with j a column.
  i64 window_left = -1;
  i64 window_right = -1;
  std::vector<i64> q_positions;  // Empty, or one per q row.
  std::vector<float> sink;
  int rotary_dim = 0;  // 0 = no RoPE.
  bool rope_interleaved = false;
  std::vector<i64> key_positions;  // Empty, or one per key of all requests.
  std::function<float(i64 key, int head, int dim)> k_value;  // Replaces random values.
  std::function<float(i64 key, int head, int dim)> v_value;
  std::function<float(i64 row, int head, int dim)> q_value;
  bool poison_unseen_keys = true;
  bool reverse_pages = false;
  std::vector<i64> request_ids;  // Values depend on these; empty = 0, 1, ...
  unsigned seed = 1;

  // The plan.
  contract::PathId path = contract::PathId::kCpuF32;
  int accuracy = 0;
  i64 split_rows = 0;  // Cut every so many keys and at segment borders; 0 = one item per row block.
  i64 block_rows = 64;
  int heads_per_item = 0;  // KV heads; 0 = all.
  bool cascade = false;    // One item for all requests of a shared segment.
};

// A bf16 cache of one segment: what most tests start from.
SegmentOptions OneSegment(contract::Format k, contract::Format v, std::vector<i64> lengths,
                          i64 page_size = 16);

class AttentionFixture {
 public:
  explicit AttentionFixture(AttentionOptions options);
  AttentionFixture(const AttentionFixture&) = delete;
  AttentionFixture& operator=(const AttentionFixture&) = delete;

  // Poisons outputs and workspace, then runs.
  Status Run(SimdTarget target, int threads = 1);
  // The same in two steps, to look at the run alone.
  void Prepare();
  Status RunPrepared(SimdTarget target, WorkerPool& pool);

  // || out - reference || / || sum_j p_j |v_j| || over the whole tensor; +inf with any NaN.
  double Error() const;
  // The largest |lse - reference| / (1e-3 + 2^-21 |reference|).
  double LseExcess() const;

  float out(i64 q_row, int head, int dim) const;
  float lse(i64 q_row, int head) const;
  std::vector<int>& page_ids(std::size_t s) { return tables_[s]; }
  const plan::PlanLists& lists() const { return lists_; }

 private:
  struct SideMemory {
    std::vector<u8> data;
    std::vector<u8> scales;
  };
  void BuildRequests();
  void BuildSegment(std::size_t s);
  void BuildSide(std::size_t s, bool is_k, i64 pages);
  void WriteRow(const SideOptions& side, contract::SideParams& params, u8* data, u8* scales,
                i64 token_in_page, int head, const std::vector<float>& values, double* stored);
  void BuildQueries();
  void BuildOptions();
  void BuildPlan();
  void BuildReference();
  void ReferenceRow(i64 request, i64 i, int head);
  bool Visible(i64 request, i64 i, i64 j) const;
  std::vector<float> RandomRow(int kind, i64 request, i64 key, int head, int dim) const;
  std::vector<double> Rotated(const double* row, i64 position) const;

  AttentionOptions o_;
  i64 q_rows_ = 0;
  std::vector<i64> kv_len_;
  std::vector<std::vector<i64>> segment_begin_;  // [request][segment + 1]
  std::vector<i64> q_begin_;
  std::vector<SideMemory> k_memory_;
  std::vector<SideMemory> v_memory_;
  std::vector<std::vector<int>> tables_;
  std::vector<std::vector<i64>> indptrs_;
  std::vector<contract::SegmentParams> segments_;
  std::vector<std::vector<double>> k_values_;  // [request][key][kv head][dim], dequantized.
  std::vector<std::vector<double>> v_values_;
  std::vector<double> q_values_;  // [row][head][dim]
  std::vector<u8> q_data_;
  std::vector<u8> q_scales_;
  std::vector<u8> mask_bits_;
  std::vector<float> slopes_;
  std::vector<double> frequencies_;
  std::vector<std::byte> out_;
  std::vector<float> lse_;
  std::vector<double> reference_;
  std::vector<double> magnitude_;
  std::vector<double> reference_lse_;
  plan::PlanLists lists_;
  std::vector<std::byte> plan_data_;
  AlignedBuffer workspace_;
  contract::AttentionParams params_;
};

}  // namespace kvilt::cpu
