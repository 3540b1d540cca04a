// Test support: random requests over everything that planning looks at.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/contract/types.h"
#include "src/plan/device_table.h"
#include "src/plan/paths.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {

// A request with the device and options to plan it for.
struct RandomCase {
  std::unique_ptr<RequestBuilder> builder;
  DeviceSpec spec;
  PlanOptions options;
  std::vector<std::int64_t> q_len;
  std::vector<std::int64_t> kv_len;
  const AttentionRequest& request() const { return builder->request; }
};

inline std::int64_t Pick(std::int64_t least, std::int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(least, most + 1));
}
template <class T>
T OneOf(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

inline RequestOptions RandomOptions(bool decode_only, bool cuda) {
  RequestOptions options;
  const auto heads = OneOf<std::pair<int, int>>(
      {{32, 8}, {1, 1}, {5, 1}, {24, 4}, {56, 8}, {64, 1}, {9, 3}, {16, 2}, {128, 128}});
  options.q_heads = heads.first;
  options.kv_heads = heads.second;
  options.head_dim_qk = OneOf({64, 96, 128, 256, 512});
  options.head_dim_vo = OneOf({64, 128, 512});
  const std::int64_t batch = Pick(0, 12);
  for (std::int64_t r = 0; r < batch; ++r) {
    options.q_len.push_back(decode_only ? 1 : OneOf<std::int64_t>({0, 1, 1, 1, 4, 33, 300}));
  }
  const DType widest = cuda ? DType::kBF16 : DType::kF32;
  const auto dtype = [widest] {
    return OneOf({DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2, DType::kNVFP4, widest});
  };
  const std::int64_t shared = OneOf<std::int64_t>({0, 0, 1, 2});
  for (std::int64_t s = 0; s < shared && batch > 1; ++s) {
    SegmentOptions segment;
    segment.k = dtype();
    segment.v = dtype();
    segment.kv_len = {OneOf<std::int64_t>({0, 1, 100, 4096})};
    const std::int64_t step = Pick(1, 3);
    for (std::int64_t r = s; r < batch; r += step) {
      segment.owners.push_back(static_cast<std::int32_t>(r));
    }
    if (!segment.owners.empty()) options.segments.push_back(segment);
  }
  for (std::int64_t s = Pick(1, 2); s > 0; --s) {
    SegmentOptions segment;
    segment.k = dtype();
    segment.v = dtype();
    segment.page_size = OneOf<std::int64_t>({0, 1, 16, 60});
    segment.layout = OneOf({KvLayout::kNHD, KvLayout::kHND});
    for (std::int64_t r = 0; r < batch; ++r) {
      segment.kv_len.push_back(OneOf<std::int64_t>({0, 1, 63, 64, 1000, 1024, 5000, 40000}));
    }
    options.segments.push_back(segment);
  }
  return options;
}

// Mask bits, windows and positions, on a request whose lengths are known.
inline void AddMaskAndWindow(RandomCase& c) {
  AttentionRequest& request = c.builder->request;
  bool tree_is_legal = true;
  for (std::size_t r = 0; r < c.q_len.size(); ++r) tree_is_legal &= c.q_len[r] <= c.kv_len[r];
  request.mask = OneOf({MaskMode::kNone, MaskMode::kCausal, MaskMode::kCausal, MaskMode::kCustom});
  if (tree_is_legal && Pick(0, 3) == 0) request.mask = MaskMode::kTree;
  if (request.mask == MaskMode::kCustom || request.mask == MaskMode::kTree) {
    std::int64_t bytes = 0;
    for (std::size_t r = 0; r < c.q_len.size(); ++r) {
      const std::int64_t columns = request.mask == MaskMode::kCustom ? c.kv_len[r] : c.q_len[r];
      bytes += contract::CeilDiv<std::int64_t>(c.q_len[r] * columns, 8);
    }
    request.mask_bits = TensorView::Dense(c.builder->Address(bytes), DType::kU8, {bytes});
  }
  request.window_left = OneOf<std::int64_t>({-1, -1, 0, 17, 1023});
  request.window_right = OneOf<std::int64_t>({-1, -1, 0, 5});
  const bool window = request.window_left >= 0 || request.window_right >= 0;
  if (window && Pick(0, 2) == 0) {
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < request.q.shape[0]; ++i) positions.push_back(Pick(-5, 6000));
    request.q_positions = c.builder->Array(std::move(positions));
  }
}

// Archs that differ in what planning looks at.
inline DeviceSpec RandomCudaSpec() {
  return CudaSpec(OneOf({80, 86, 89, 90, 100, 120, 121}),
                  static_cast<int>(OneOf<std::int64_t>({0, 0, 1, 7, 132})));
}

inline RandomCase MakeRandomCase(bool decode_only = false, bool cuda = false) {
  RandomCase c;
  const RequestOptions options = RandomOptions(decode_only, cuda);
  c.builder = std::make_unique<RequestBuilder>(options);
  c.q_len = options.q_len;
  c.kv_len.assign(options.q_len.size(), 0);
  for (const SegmentOptions& segment : options.segments) {
    for (std::size_t r = 0; r < c.kv_len.size(); ++r) {
      if (segment.owners.empty()) {
        c.kv_len[r] += segment.kv_len[r];
      } else if (std::count(segment.owners.begin(), segment.owners.end(), static_cast<int>(r))) {
        c.kv_len[r] += segment.kv_len[0];
      }
    }
  }
  AddMaskAndWindow(c);
  c.spec = CpuSpec(OneOf({SimdTarget::kAvx512Bf16, SimdTarget::kAvx2}),
                   static_cast<int>(OneOf<std::int64_t>({1, 2, 3, 16, 132})),
                   OneOf<std::int64_t>({0, 256 << 10, 2 << 20}));
  if (cuda) {
    c.spec = RandomCudaSpec();
    c.builder->Place(DeviceKind::kCuda);
  }
  c.options.split = OneOf({SplitMode::kAuto, SplitMode::kAuto, SplitMode::kFixed, SplitMode::kOff});
  if (c.options.split == SplitMode::kFixed) {
    c.options.fixed_split_rows = OneOf<std::int64_t>({17, 64, 100, 256, 4096, 1 << 20});
  }
  c.options.allow_cascade = Pick(0, 3) != 0;
  return c;
}

}  // namespace kvilt::plan
