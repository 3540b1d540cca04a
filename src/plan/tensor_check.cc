#include "src/plan/tensor_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

std::string_view DeviceName(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string ShapeText(const TensorRule& rule) {
  std::string text = "[";
  for (int dim = 0; dim < rule.rank; ++dim) {
    text += fmt::format("{}{}", dim == 0 ? "" : ", ", rule.axes[dim]);
    if (rule.shape[dim] != kAnyExtent) text += fmt::format(" = {}", rule.shape[dim]);
  }
  return text + "]";
}

bool Empty(const TensorView& tensor) {
  for (int dim = 0; dim < tensor.rank; ++dim) {
    if (tensor.shape[dim] == 0) return true;
  }
  return false;
}

// The extent in bytes, or false when it leaves 64 bits.
bool ExtentOf(const TensorView& tensor, int first_dim, std::int64_t& bytes) {
  std::int64_t last = 0;
  for (int dim = first_dim; dim < tensor.rank; ++dim) {
    std::int64_t step = 0;
    if (tensor.shape[dim] == 0) {
      bytes = 0;
      return true;
    }
    if (!Multiply(tensor.shape[dim] - 1, tensor.stride[dim], step) || !Add(last, step, last)) {
      return false;
    }
  }
  return Add(last, 1, last) && Multiply(last, StorageBytes(tensor.dtype), bytes);
}

Status CheckExtents(const TensorView& tensor, const TensorRule& rule, FieldPath field) {
  if (tensor.rank != rule.rank) {
    return Status::Invalid(field.str(".rank"), fmt::format("{}, expected {} {}", tensor.rank,
                                                           rule.rank, ShapeText(rule)));
  }
  std::int64_t elements = 1;
  for (int dim = 0; dim < rule.rank; ++dim) {
    const std::int64_t extent = tensor.shape[dim];
    if (extent < 0) {
      return Status::Invalid(field.str(fmt::format(".shape[{}]", dim)),
                             fmt::format("{}, expected >= 0", extent));
    }
    if (rule.shape[dim] != kAnyExtent && extent != rule.shape[dim]) {
      return Status::Invalid(field.str(fmt::format(".shape[{}]", dim)),
                             fmt::format("{}, expected {} ({} of {})", extent, rule.shape[dim],
                                         rule.axes[dim], ShapeText(rule)));
    }
    if (extent > 0 && !Multiply(elements, extent, elements)) {
      return Status::Invalid(
          field.str(fmt::format(".shape[{}]", dim)),
          fmt::format("{}: the element count overflows 64 bits, expected fewer than 2^63", extent));
    }
  }
  return {};
}

Status CheckStrides(const TensorView& tensor, const TensorRule& rule, FieldPath field) {
  for (int dim = 0; dim < rule.rank; ++dim) {
    if (tensor.stride[dim] < 0) {
      return Status::Invalid(
          field.str(fmt::format(".stride[{}]", dim)),
          fmt::format("{} ({} axis), expected >= 0", tensor.stride[dim], rule.axes[dim]));
    }
  }
  const int inner = rule.rank - 1;
  if (rule.unit_innermost && tensor.stride[inner] != 1) {
    return Status::Invalid(field.str(fmt::format(".stride[{}]", inner)),
                           fmt::format("{} ({} axis), expected 1: the innermost axis must be "
                                       "contiguous",
                                       tensor.stride[inner], rule.axes[inner]));
  }
  return {};
}

// Whether bytes of a and b may meet, of each one index of the dims before `dim`, when that part of
// b begins `gap` bytes behind that of a.
bool MayMeet(const TensorView& a, const TensorView& b, int dim, std::int64_t gap) {
  std::int64_t a_bytes = 0;
  std::int64_t b_bytes = 0;
  KVILT_CHECK(ExtentOf(a, dim, a_bytes) && ExtentOf(b, dim, b_bytes));
  if (gap >= a_bytes || -gap >= b_bytes) return false;
  if (dim == a.rank || dim == b.rank) return true;
  if (a.shape[dim] == 1 && b.shape[dim] == 1) return MayMeet(a, b, dim + 1, gap);

  const std::int64_t a_step = a.stride[dim] * StorageBytes(a.dtype);
  const std::int64_t b_step = b.stride[dim] * StorageBytes(b.dtype);
  const std::int64_t step = a.shape[dim] == 1 ? b_step : a_step;
  if (a.shape[dim] > 1 && b.shape[dim] > 1 && a_step != b_step) return true;
  KVILT_CHECK(ExtentOf(a, dim + 1, a_bytes) && ExtentOf(b, dim + 1, b_bytes));
  if (step == 0 || a_bytes > step || b_bytes > step) return true;
  // Rows lie gap + k * step apart; only the two nearest distances can be within a row.
  const std::int64_t behind = (gap % step + step) % step;
  return MayMeet(a, b, dim + 1, behind) || MayMeet(a, b, dim + 1, behind - step);
}

}  // namespace

bool FieldPath::Is(std::string_view text) const {
  if (prefix.empty()) return text == name;
  return text.size() == prefix.size() + 1 + name.size() && text.starts_with(prefix) &&
         text[prefix.size()] == '.' && text.ends_with(name);
}

std::string FieldPath::str() const { return str(""); }

std::string FieldPath::str(std::string_view suffix) const {
  const bool dot = !prefix.empty() && !name.empty();
  return fmt::format("{}{}{}{}", prefix, dot ? "." : "", name, suffix);
}

Status CheckTensor(const TensorView& tensor, const TensorRule& rule, DeviceKind device,
                   FieldPath field) {
  if (!tensor.defined()) {
    return Status::Invalid(
        field.str(), fmt::format("not given (rank {}), expected {}", tensor.rank, ShapeText(rule)));
  }
  KVILT_RETURN_IF_ERROR(CheckExtents(tensor, rule, field));
  KVILT_RETURN_IF_ERROR(CheckStrides(tensor, rule, field));
  if (tensor.device.kind != device) {
    return Status::Invalid(field.str(".device"),
                           fmt::format("{}, expected {}: the device of the plan",
                                       DeviceName(tensor.device.kind), DeviceName(device)));
  }
  KVILT_RETURN_IF_ERROR(CheckDeviceIndex(tensor.device, field));
  std::int64_t bytes = 0;
  if (!ExtentOf(tensor, 0, bytes)) {
    int widest = 0;
    for (int dim = 1; dim < tensor.rank; ++dim) {
      if (tensor.stride[dim] > tensor.stride[widest]) widest = dim;
    }
    return Status::Invalid(field.str(fmt::format(".stride[{}]", widest)),
                           fmt::format("{} for {} entries: the last byte offset overflows 64 bits, "
                                       "expected less than 2^63",
                                       tensor.stride[widest], tensor.shape[widest]));
  }
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (base != 0 &&
      static_cast<std::uintptr_t>(bytes) > std::numeric_limits<std::uintptr_t>::max() - base) {
    return Status::Invalid(field.str(".data"),
                           fmt::format("{} bytes from {:#x} leave the address space", bytes, base));
  }
  if (const auto unit = static_cast<std::uintptr_t>(StorageBytes(tensor.dtype));
      unit > 1 && base % unit != 0) {
    return Status::Invalid(field.str(".data"),
                           fmt::format("address {:#x}, expected a multiple of {} ({})", base, unit,
                                       Name(tensor.dtype)));
  }
  return {};
}

Status CheckDeviceIndex(DeviceId device, FieldPath field) {
  if (device.kind != DeviceKind::kCpu || device.index == 0) return {};
  return Status::Invalid(field.str(".device.index"),
                         fmt::format("{}, expected 0: there is one cpu", device.index));
}

Status CheckDType(const TensorView& tensor, std::initializer_list<DType> accepted,
                  FieldPath field) {
  if (std::find(accepted.begin(), accepted.end(), tensor.dtype) != accepted.end()) return {};
  std::string names;
  for (DType dtype : accepted) names += fmt::format("{}{}", names.empty() ? "" : ", ", Name(dtype));
  return Status::Invalid(field.str(".dtype"),
                         fmt::format("{}, expected {}", Name(tensor.dtype), names));
}

Status CheckAddressed(const TensorView& tensor, FieldPath field) {
  if (tensor.data != nullptr || Empty(tensor)) return {};
  return Status::Invalid(field.str(".data"),
                         "null, expected an address: elements would be read or "
                         "written");
}

Status CheckIndexArray(const IndexArray& array, std::int64_t size, bool host, DeviceKind device,
                       FieldPath field) {
  if (array.dtype != DType::kI32 && array.dtype != DType::kI64) {
    return Status::Invalid(field.str(".dtype"),
                           fmt::format("{}, expected i32 or i64", Name(array.dtype)));
  }
  if (array.size < 0 || (size != kAnyExtent && array.size != size)) {
    const std::string accepted = size == kAnyExtent ? ">= 0" : fmt::format("{}", size);
    return Status::Invalid(field.str(".size"),
                           fmt::format("{}, expected {}", array.size, accepted));
  }
  if (!array.on_host() && (host || device != array.device.kind)) {
    return Status::Invalid(field.str(".device"),
                           fmt::format("{}, expected {}", DeviceName(array.device.kind),
                                       host ? "a host array: planning reads it"
                                            : "the host or the device of the plan"));
  }
  KVILT_RETURN_IF_ERROR(CheckDeviceIndex(array.device, field));
  if (array.size > 0 && array.data == nullptr) {
    return Status::Invalid(field.str(".data"),
                           fmt::format("null, expected an array of {} entries", array.size));
  }
  const auto unit = static_cast<std::uintptr_t>(StorageBytes(array.dtype));
  const auto base = reinterpret_cast<std::uintptr_t>(array.data);
  if (base % unit != 0) {
    return Status::Invalid(field.str(".data"), fmt::format("address {:#x}, expected a multiple of "
                                                           "{}",
                                                           base, unit));
  }
  std::int64_t bytes = 0;
  if (!Multiply(array.size, static_cast<std::int64_t>(unit), bytes)) {
    return Status::Invalid(field.str(".size"),
                           fmt::format("{} entries overflow 64 bits of bytes", array.size));
  }
  return {};
}

std::int64_t ByteExtent(const TensorView& tensor) {
  std::int64_t bytes = 0;
  KVILT_CHECK(ExtentOf(tensor, 0, bytes));
  return bytes;
}

Status CheckNoSelfOverlap(const TensorView& tensor, FieldPath field) {
  if (Empty(tensor)) return {};
  // Dims by ascending stride, insertion-sorted in place: runs pass here and must not allocate.
  int dims[kMaxRank];
  int count = 0;
  for (int dim = 0; dim < tensor.rank; ++dim) {
    if (tensor.shape[dim] <= 1) continue;
    int at = count++;
    for (; at > 0 && tensor.stride[dims[at - 1]] > tensor.stride[dim]; --at)
      dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  std::int64_t covered = 1;
  for (int i = 0; i < count; ++i) {
    const int dim = dims[i];
    if (tensor.stride[dim] < covered) {
      return Status::Invalid(field.str(fmt::format(".stride[{}]", dim)),
                             fmt::format("{}, expected >= {}: rows of a written tensor must not "
                                         "overlap",
                                         tensor.stride[dim], covered));
    }
    covered = (tensor.shape[dim] - 1) * tensor.stride[dim] + covered;
  }
  return {};
}

bool MayOverlap(const TensorView& a, const TensorView& b) {
  if (Empty(a) || Empty(b) || a.data == nullptr || b.data == nullptr) return false;
  const auto a_base = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_base = reinterpret_cast<std::uintptr_t>(b.data);
  const auto a_bytes = static_cast<std::uintptr_t>(ByteExtent(a));
  const auto b_bytes = static_cast<std::uintptr_t>(ByteExtent(b));
  if (a_base + a_bytes <= b_base || b_base + b_bytes <= a_base) return false;

  return MayMeet(a, b, 0, static_cast<std::int64_t>(b_base - a_base));
}

}  // namespace kvilt::plan
