// What a GPU kernel reads of a request's host arrays, as one image to be copied to the device:
//
//   i64 table_begins[batch][segments] | q_positions | rope key positions | page ids of each segment
//   that has them on the host | f64 RoPE frequencies | decode multipliers given as host arrays
//
// Arrays that are on the device already are left out and used where they are.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvilt/request.h"
#include "src/contract/attention_args.h"

namespace kvilt::api {

class HostTables {
 public:
  // Allocates only to grow. REQUIRES: a request that matches its plan.
  void Build(const AttentionRequest& request, std::span<const double> rope_frequencies);

  std::span<const std::byte> bytes() const { return bytes_; }
  // Where the arrays behind the table begins lie: two images with the same parts may replace each
  // other under a captured graph.
  std::span<const std::size_t> parts() const { return parts_; }
  // Points `args` (bound from the same request) into a copy of the image at `base`.
  void PointInto(const std::byte* base, contract::AttentionArgs& args) const;

 private:
  std::size_t Append(const void* data, std::size_t bytes);
  void AppendBegins(const AttentionRequest& request);
  std::size_t AppendGlobal(const DecodeScale& global);

  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> parts_;
  std::size_t q_positions_ = kNone;
  std::size_t key_positions_ = kNone;
  std::size_t frequencies_ = kNone;
  // By segment.
  std::vector<std::size_t> indices_, k_globals_, v_globals_;
};

}  // namespace kvilt::api
