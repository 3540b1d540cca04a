#include "cli/demo/judge.h"

#include <cmath>
#include <functional>

namespace kvilt::cli::demo {
namespace {

// Calls visit(row of the batch, head, index of (row, head) in the reference).
void ForEachRow(const oracle::Reference& reference,
                const std::function<void(std::int64_t, std::int64_t, std::size_t)>& visit) {
  std::size_t index = 0;
  for (std::int64_t row : reference.rows) {
    for (std::int64_t head = 0; head < reference.q_heads; ++head) visit(row, head, index++);
  }
}

}  // namespace

void ErrorSums::AddError(const oracle::Reference& reference, const Call& call) {
  const auto dims = static_cast<std::size_t>(reference.head_dim_vo);
  ForEachRow(reference, [&](std::int64_t row, std::int64_t head, std::size_t index) {
    const float* out = call.Row(row, head);
    for (std::size_t d = 0; d < dims; ++d) {
      const double difference = static_cast<double>(out[d]) - reference.out[index * dims + d];
      error_ += difference * difference;
    }
    magnitude_ += reference.magnitude[index] * reference.magnitude[index];
  });
}

void ErrorSums::AddDifference(const oracle::Reference& reference, const Call& a, const Call& b) {
  const auto dims = static_cast<std::size_t>(reference.head_dim_vo);
  ForEachRow(reference, [&](std::int64_t row, std::int64_t head, std::size_t index) {
    for (std::size_t d = 0; d < dims; ++d) {
      const double difference =
          static_cast<double>(a.Row(row, head)[d]) - static_cast<double>(b.Row(row, head)[d]);
      error_ += difference * difference;
    }
    magnitude_ += reference.magnitude[index] * reference.magnitude[index];
  });
}

double ErrorSums::value() const { return magnitude_ > 0 ? std::sqrt(error_ / magnitude_) : 0; }

}  // namespace kvilt::cli::demo
