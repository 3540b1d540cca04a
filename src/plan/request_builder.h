// Test support: requests over made-up memory. Planning never touches q, caches or outputs, so
// their addresses only need to be apart, aligned and non-null.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvilt/attention.h"

namespace kvilt::plan {

struct SegmentOptions {
  DType k = DType::kBF16;
  DType v = DType::kBF16;
  std::vector<std::int64_t> kv_len;  // Per request, or one entry with owners.
  std::vector<std::int32_t> owners;
  std::int64_t page_size = 16;  // 0 = ragged.
  KvLayout layout = KvLayout::kNHD;
};

struct RequestOptions {
  int q_heads = 32;
  int kv_heads = 8;
  int head_dim_qk = 128;
  int head_dim_vo = 128;
  DType q = DType::kBF16;
  DType out = DType::kF32;
  std::vector<std::int64_t> q_len;
  std::vector<SegmentOptions> segments;
  MaskMode mask = MaskMode::kCausal;
  bool lse = true;
};

// A valid request and the host arrays it borrows. Not copyable; keep it alive with the request.
class RequestBuilder {
 public:
  explicit RequestBuilder(const RequestOptions& options);
  RequestBuilder(const RequestBuilder&) = delete;
  RequestBuilder& operator=(const RequestBuilder&) = delete;

  // Says of every tensor that it lies on a device of this kind.
  void Place(DeviceKind kind);
  // A fresh range of addresses.
  void* Address(std::int64_t bytes);
  // A host array that lives as long as the builder.
  IndexArray Array(std::vector<std::int64_t> values);

  AttentionRequest request;

 private:
  CacheSide Side(DType dtype, bool paged, std::int64_t pages, std::int64_t tokens, int kv_heads,
                 int head_dim, KvLayout layout);
  Segment MakeSegment(const RequestOptions& options, const SegmentOptions& segment);

  std::uintptr_t next_ = std::uintptr_t{1} << 32;
  std::vector<std::unique_ptr<std::vector<std::int64_t>>> arrays_;
};

// One bf16 segment, decode or more rows.
RequestOptions Decode(std::vector<std::int64_t> kv_len, std::int64_t q_len = 1);

}  // namespace kvilt::plan
