// Checks of single operands: what can be said about a tensor or an index array alone.
//
// Every failure is a Status whose field is a path into the caller's own request
// ("segments[0].k.data.stride[3]") and whose text gives the value found and what is accepted.
// Nothing here reads a tensor's elements. Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "kvilt/status.h"
#include "kvilt/tensor.h"

namespace kvilt::plan {

// Where an operand stands in the request. Joined only when there is something to report.
struct FieldPath {
  std::string_view prefix;  // "segments[0]", may be empty.
  std::string_view name;    // "k.data"
  std::string str() const;
  std::string str(std::string_view suffix) const;  // str() + suffix
  bool Is(std::string_view text) const;            // text == str(), without building it.
};

inline constexpr std::int64_t kAnyExtent = -1;

// The shape that an operand must have. `axes` names each dim in messages.
struct TensorRule {
  int rank = 0;
  std::int64_t shape[4] = {};
  std::string_view axes[4] = {};
  bool unit_innermost = true;  // The innermost stride must be 1.
};

// Rank, extents (>= 0, as the rule says), strides (>= 0; innermost 1 where the rule says so), the
// device, the byte extent (fits 63 bits, stays within the address space), the alignment of the
// base to one storage element. Null data is legal here: see CheckAddressed.
Status CheckTensor(const TensorView& tensor, const TensorRule& rule, DeviceKind device,
                   FieldPath field);

// The dtype is one of `accepted`.
Status CheckDType(const TensorView& tensor, std::initializer_list<DType> accepted, FieldPath field);

// The CPU has no other index than 0; which indices a GPU has, its backend knows.
Status CheckDeviceIndex(DeviceId device, FieldPath field);

// Refuses null data of a tensor that has elements. Call it when elements would be addressed.
Status CheckAddressed(const TensorView& tensor, FieldPath field);

// dtype kI32 or kI64, exactly `size` entries (kAnyExtent: any count >= 0), not null when it has
// entries, aligned. `host`: must be readable at plan time.
Status CheckIndexArray(const IndexArray& array, std::int64_t size, bool host, DeviceKind device,
                       FieldPath field);

// Bytes from the first to one past the last element. REQUIRES: the tensor passed CheckTensor.
std::int64_t ByteExtent(const TensorView& tensor);

// Refuses a written tensor of which two different indices name the same bytes. Sufficient, not
// exact: sorted by stride, each dim must step over all smaller ones.
Status CheckNoSelfOverlap(const TensorView& tensor, FieldPath field);

// True when the bytes of a and b may meet. Exact for disjoint address ranges and for views that
// step alike from the outermost axis down to where they part (columns of one packed buffer, [data |
// scales] rows, [pages, 2, ...] pools); otherwise errs towards true.
bool MayOverlap(const TensorView& a, const TensorView& b);

// Products and sums of sizes that the user gave; false when the result leaves 64 bits.
inline bool Multiply(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
inline bool Add(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

}  // namespace kvilt::plan
