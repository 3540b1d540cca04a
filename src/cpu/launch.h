// What every part of one RunAttention call sees. Read-only but for the error word.
#pragma once

#include <atomic>
#include <cstddef>

#include "src/contract/attention_params.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/rope_angles.h"
#include "src/plan/plan_data.h"

namespace kvilt::cpu {

// The first absent page that a visible key fell on, by (segment, request, page): the smallest wins,
// so the message does not depend on threads.
class AbsentPages {
 public:
  void Report(i64 segment, i64 request, i64 page) {
    const u64 key = static_cast<u64>(segment) << 56 | static_cast<u64>(request) << 32 |
                    static_cast<u64>(page < 0xFFFFFFFF ? page : 0xFFFFFFFF);
    u64 seen = first_.load(std::memory_order_relaxed);
    while (key < seen && !first_.compare_exchange_weak(seen, key)) {
    }
  }
  bool any() const { return first_.load() != kNone; }
  i64 segment() const { return static_cast<i64>(first_.load() >> 56); }
  i64 request() const { return static_cast<i64>(first_.load() >> 32 & 0xFFFFFF); }
  i64 page() const { return static_cast<i64>(first_.load() & 0xFFFFFFFF); }

 private:
  static constexpr u64 kNone = ~u64{0};
  std::atomic<u64> first_{kNone};
};

struct Launch {
  const plan::PlanDataView* plan = nullptr;
  const contract::AttentionParams* params = nullptr;
  const AttentionBody* body = nullptr;
  BodyConfig config;
  int group = 1;  // Query heads per KV head.
  std::byte* workspace = nullptr;
  const RopeAngles* rope = nullptr;  // Null without RoPE.
  AbsentPages* absent = nullptr;
};

}  // namespace kvilt::cpu
