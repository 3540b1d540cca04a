// What every part of one RunAttention call sees. Read-only but for the error word.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include "src/contract/attention_params.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/rope_angles.h"
#include "src/plan/plan_data.h"

namespace kvilt::cpu {

// The first absent page that a visible key fell on, by (segment, request, page): the smallest wins,
// so the message does not depend on threads. Reports are the exception, so a lock will do.
class AbsentPages {
 public:
  void Report(i64 segment, i64 request, i64 page) {
    const std::lock_guard lock(mutex_);
    const Place place{segment, request, page};
    if (!any_ || place < first_) first_ = place;
    any_ = true;
  }
  // Of all reports so far. REQUIRES, but for any(): any().
  bool any() const { return any_; }
  i64 segment() const { return first_[0]; }
  i64 request() const { return first_[1]; }
  i64 page() const { return first_[2]; }

 private:
  using Place = std::array<i64, 3>;
  std::mutex mutex_;
  bool any_ = false;
  Place first_{};
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
