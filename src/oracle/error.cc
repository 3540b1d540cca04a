#include <algorithm>
#include <cmath>
#include <limits>

#include "src/oracle/decode.h"
#include "src/oracle/oracle.h"

namespace kvilt::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RowError {
  double squares = 0;
  double kernel_squares = 0;  // Beyond half an ulp of out's dtype.
  std::int64_t nan_elements = 0;
};

// What underflow may take from an element: f32 results are flushed below the smallest normal number
// (which bf16 shares), f16 rounds to multiples of 2^-24.
double Underflow(DType out) { return out == DType::kF16 ? 0x1p-25 : 0x1p-126; }

// Half of the distance between neighbours of `dtype` at x.
double HalfUlp(DType dtype, double x) {
  if (dtype == DType::kF32 || x == 0) return 0;
  const int mantissa_bits = dtype == DType::kBF16 ? 7 : 10;
  const int lowest_exponent = dtype == DType::kBF16 ? -126 : -14;
  return std::ldexp(0.5, std::max(std::ilogb(x), lowest_exponent) - mantissa_bits);
}

RowError CompareRow(DType dtype, const std::vector<double>& got, const double* want) {
  RowError error;
  for (std::size_t d = 0; d < got.size(); ++d) {
    if (std::isnan(got[d])) ++error.nan_elements;
    const double difference = std::fabs(got[d] - want[d]);
    if (difference > Underflow(dtype)) {
      const double beyond = std::max(0.0, difference - HalfUlp(dtype, want[d]));
      error.squares += difference * difference;
      error.kernel_squares += beyond * beyond;
    }
  }
  if (error.nan_elements > 0) error.squares = error.kernel_squares = kInfinity;
  return error;
}

double Ratio(double squares, double magnitude) {
  if (squares == 0) return 0;
  return magnitude > 0 ? std::sqrt(squares) / magnitude : kInfinity;
}

void CompareLse(double got, double want, Error& error) {
  if (std::isnan(got)) ++error.nan_elements;
  if (got == want) return;  // Equal infinities too.
  double difference = std::fabs(got - want);
  if (std::isnan(difference)) difference = kInfinity;
  const double bound = 1e-3 + std::ldexp(std::fabs(want), -21);
  error.lse_err = std::max(error.lse_err, difference);
  error.lse_excess =
      std::max(error.lse_excess, std::isfinite(bound) ? difference / bound : kInfinity);
}

}  // namespace

Error ErrorAgainst(const Reference& reference, const AttentionRequest& request) {
  Error error;
  double squares = 0, kernel_squares = 0, magnitudes = 0;
  for (std::size_t n = 0; n < reference.rows.size(); ++n) {
    const std::int64_t row = reference.rows[n];
    for (std::int64_t head = 0; head < reference.q_heads; ++head) {
      const std::size_t entry =
          n * static_cast<std::size_t>(reference.q_heads) + static_cast<std::size_t>(head);
      const auto got =
          DecodeRow(request.out.dtype, At(request.out, {row, head, 0}), reference.head_dim_vo);
      const double* want =
          reference.out.data() + entry * static_cast<std::size_t>(reference.head_dim_vo);
      const RowError row_error = CompareRow(request.out.dtype, got, want);
      const double magnitude = reference.magnitude[entry];
      squares += row_error.squares;
      kernel_squares += row_error.kernel_squares;
      magnitudes += magnitude * magnitude;
      error.nan_elements += row_error.nan_elements;
      const double relative = Ratio(row_error.kernel_squares, magnitude);
      if (relative > error.worst_row_rel_l2) {
        error.worst_row_rel_l2 = relative;
        error.worst_row = row;
        error.worst_head = head;
      }
      if (request.lse.defined()) {
        const auto lse = DecodeRow(DType::kF32, At(request.lse, {row, head}), 1);
        CompareLse(lse[0], reference.lse[entry], error);
      }
    }
  }
  const double unit = request.lse_base == LseBase::kTwo ? std::log(2.0) : 1.0;
  for (double lse : reference.lse) {
    if (std::isfinite(lse)) error.largest_lse = std::max(error.largest_lse, std::fabs(lse) * unit);
  }
  error.rel_l2 = Ratio(squares, std::sqrt(magnitudes));
  error.kernel_rel_l2 = Ratio(kernel_squares, std::sqrt(magnitudes));
  // A row without weight must be zero, however small it is beside the others.
  if (error.worst_row_rel_l2 == kInfinity) error.rel_l2 = error.kernel_rel_l2 = kInfinity;
  return error;
}

Error ErrorAgainst(const AttentionRequest& request, std::int64_t max_rows) {
  return ErrorAgainst(Attention(request, max_rows), request);
}

}  // namespace kvilt::oracle
