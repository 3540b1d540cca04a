// TensorView and IndexArray: borrowed memory with a declared meaning. They own nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kvilt/dtype.h"

namespace kvilt {

enum class DeviceKind : std::uint8_t { kCpu = 0, kCuda = 1 };

struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

inline constexpr int kMaxRank = 6;

// A strided view. Shapes and strides count storage elements (see StorageBytes): for kNVFP4 a
// storage element is a byte of two codes, so a row of head_dim values has shape head_dim / 2.
// Strides are 64-bit, may describe views into larger pools, and are never derived from another
// tensor's. The caller keeps the memory alive while a call that got the view runs.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  DeviceId device;

  // A view is given (an optional operand is present) when it has a rank.
  bool defined() const { return rank > 0; }

  // A dense row-major view.
  static TensorView Dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                          DeviceId device = {}) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    view.device = device;
    for (std::int64_t extent : shape) {
      if (view.rank < kMaxRank) view.shape[view.rank++] = extent;
    }
    std::int64_t step = 1;
    for (int dim = view.rank - 1; dim >= 0; --dim) {
      view.stride[dim] = step;
      step *= view.shape[dim];
    }
    return view;
  }
  static TensorView Dense(const void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                          DeviceId device = {}) {
    return Dense(const_cast<void*>(data), dtype, shape, device);  // Inputs are never written.
  }
};

// A one-dimensional array of int32 or int64 with unit stride, on the host or on a device.
struct IndexArray {
  const void* data = nullptr;
  DType dtype = DType::kI64;
  std::int64_t size = 0;
  DeviceId device;

  IndexArray() = default;
  IndexArray(std::span<const std::int32_t> values)  // NOLINT(google-explicit-constructor)
      : data(values.data()), dtype(DType::kI32), size(static_cast<std::int64_t>(values.size())) {}
  IndexArray(std::span<const std::int64_t> values)  // NOLINT(google-explicit-constructor)
      : data(values.data()), dtype(DType::kI64), size(static_cast<std::int64_t>(values.size())) {}
  IndexArray(const std::vector<std::int32_t>& values)  // NOLINT(google-explicit-constructor)
      : IndexArray(std::span(values)) {}
  IndexArray(const std::vector<std::int64_t>& values)  // NOLINT(google-explicit-constructor)
      : IndexArray(std::span(values)) {}
  IndexArray(std::vector<std::int32_t>&&) = delete;  // Would borrow from a temporary.
  IndexArray(std::vector<std::int64_t>&&) = delete;

  bool defined() const { return data != nullptr || size > 0; }
  bool on_host() const { return device.kind == DeviceKind::kCpu; }

  // REQUIRES: on_host() and 0 <= i < size.
  std::int64_t operator[](std::int64_t i) const {
    return dtype == DType::kI32 ? static_cast<const std::int32_t*>(data)[i]
                                : static_cast<const std::int64_t*>(data)[i];
  }
};

}  // namespace kvilt
