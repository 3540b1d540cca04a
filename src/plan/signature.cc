#include "src/plan/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "src/plan/operands.h"

namespace kvilt::plan {
namespace {

constexpr int kWidestCopy = 16;

// The largest power of two <= 16 that divides the address.
int AlignmentOf(const void* data) {
  const auto base = reinterpret_cast<std::uintptr_t>(data) | kWidestCopy;
  return static_cast<int>(base & (~base + 1));
}

// SplitMix64's finalizer over a running sum: order matters, every input bit reaches every output.
class Hash {
 public:
  void Add(std::uint64_t value) {
    std::uint64_t x = state_ + 0x9E3779B97F4A7C15u + value;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    state_ = x ^ (x >> 31);
  }
  void Add(std::int64_t value) { Add(static_cast<std::uint64_t>(value)); }
  void Add(int value) { Add(static_cast<std::int64_t>(value)); }
  void Add(bool value) { Add(static_cast<std::uint64_t>(value)); }
  // -0 and 0 compute alike. Bits alone: for a caller who flushes subnormals, they would equal 0.
  void Add(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    Add(bits << 1 == 0 ? 0 : bits);
  }
  void Add(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    Add(std::uint64_t{bits << 1 == 0 ? 0 : bits});
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

void AddSide(Hash& hash, const CacheSide& side) {
  hash.Add(static_cast<int>(side.layout));
  hash.Add(static_cast<int>(side.scale_layout));
  hash.Add(side.scale_row_blocks);
}

void AddRope(Hash& hash, const Rope& rope) {
  hash.Add(static_cast<int>(rope.pairing));
  hash.Add(static_cast<int>(rope.frequency));
  hash.Add(rope.theta);
  hash.Add(rope.rotary_dim);
  hash.Add(rope.scale);
  hash.Add(rope.llama31.has_value());
  if (rope.llama31) {
    hash.Add(rope.llama31->low_freq_factor);
    hash.Add(rope.llama31->high_freq_factor);
    hash.Add(rope.llama31->original_length);
  }
  hash.Add(rope.key_positions.defined());
}

// The request gives `path` where the plan has something else next.
Status OtherOperand(const AttentionRequest& request, const FieldPath& path, const Plan& plan,
                    std::size_t next) {
  if (next < plan.signature.size()) {
    bool given = false;
    const Status status = ForEachTensor(request, [&](const FieldPath& other, const TensorView&) {
      given |= other.Is(plan.signature[next].operand);
      return Status();
    });
    KVILT_CHECK(status.ok());
    if (!given) {
      return Status::Precondition(plan.signature[next].operand,
                                  "not given; the plan was made with it");
    }
  }
  return Status::Precondition(path.str(), "given; the plan was made without it");
}

}  // namespace

std::vector<OperandSignature> MakeSignature(const AttentionRequest& request) {
  std::vector<OperandSignature> signature;
  const Status status =
      ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) {
        OperandSignature& entry = signature.emplace_back();
        entry.operand = path.str();
        entry.dtype = tensor.dtype;
        entry.shape.assign(tensor.shape, tensor.shape + tensor.rank);
        entry.stride.assign(tensor.stride, tensor.stride + tensor.rank);
        entry.alignment = AlignmentOf(tensor.data);
        return Status();
      });
  KVILT_CHECK(status.ok());
  return signature;
}

Status CheckSameKind(const AttentionRequest& request, const Plan& plan) {
  std::size_t next = 0;
  KVILT_RETURN_IF_ERROR(
      ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) -> Status {
        if (next == plan.signature.size() || !path.Is(plan.signature[next].operand)) {
          return OtherOperand(request, path, plan, next);
        }
        const OperandSignature& planned = plan.signature[next++];
        if (tensor.dtype == planned.dtype) return {};
        return Status::Precondition(
            path.str(".dtype"),
            fmt::format("{}; the plan was made for {}", Name(tensor.dtype), Name(planned.dtype)));
      }));
  if (next < plan.signature.size()) {
    return Status::Precondition(plan.signature[next].operand,
                                "not given; the plan was made with it");
  }
  const auto same = [](std::string_view field, std::int64_t planned, std::int64_t found) {
    if (planned == found) return Status();
    return Status::Precondition(std::string(field),
                                fmt::format("{}; the plan was made for {}, and an update changes "
                                            "only lengths; make a new plan",
                                            found, planned));
  };
  const auto head_dim = [](const TensorView& rows) {
    return rows.shape[2] * (rows.dtype == DType::kNVFP4 ? 2 : 1);
  };
  KVILT_RETURN_IF_ERROR(same("q_heads", plan.q_heads, request.q.shape[1]));
  KVILT_RETURN_IF_ERROR(same("head_dim_qk", plan.head_dim_qk, head_dim(request.q)));
  KVILT_RETURN_IF_ERROR(same("head_dim_vo", plan.head_dim_vo, request.out.shape[2]));
  const CacheSide& k = request.segments.front().k();
  const int head_axis = k.data.rank - (k.layout == KvLayout::kNHD ? 2 : 3);
  KVILT_RETURN_IF_ERROR(same("kv_heads", plan.kv_heads, k.data.shape[head_axis]));
  if (OptionsHash(request) == plan.options_hash) return {};
  return Status::Precondition("request",
                              "its options (scales, mask, window, positions, bias, RoPE, sink, "
                              "layouts, owners) are not those of the plan, and an update changes "
                              "only lengths; make a new plan");
}

void UpdateSignature(const AttentionRequest& request, std::vector<OperandSignature>& signature) {
  std::size_t next = 0;
  const Status status = ForEachTensor(request, [&](const FieldPath&, const TensorView& tensor) {
    OperandSignature& entry = signature[next++];
    entry.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    entry.stride.assign(tensor.stride, tensor.stride + tensor.rank);
    entry.alignment = AlignmentOf(tensor.data);
    return Status();
  });
  KVILT_CHECK(status.ok());
}

std::vector<CopyWidth> MakeCopyWidths(const AttentionRequest& request) {
  std::vector<CopyWidth> widths;
  const Status status =
      ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) {
        if (tensor.rank < 3) return Status();
        const int unit = StorageBytes(tensor.dtype);
        int width = AlignmentOf(tensor.data);
        const auto fits = [&](std::int64_t bytes) {
          while (bytes % width != 0) width /= 2;
        };
        for (int dim = 0; dim + 1 < tensor.rank; ++dim) {
          if (tensor.shape[dim] > 1) fits(tensor.stride[dim] * unit);
        }
        fits(tensor.shape[tensor.rank - 1] * unit);
        widths.push_back({path.str(), width});
        return Status();
      });
  KVILT_CHECK(status.ok());
  return widths;
}

std::uint64_t PositionsHash(const AttentionRequest& request) {
  const bool window = request.window_left >= 0 || request.window_right >= 0;
  if (!request.q_positions.defined() || !window || request.q_indptr.size < 1) return 0;
  Hash hash;
  const std::int64_t rows =
      std::min(request.q_indptr[request.q_indptr.size - 1], request.q_positions.size);
  for (std::int64_t i = 0; i < rows; ++i) hash.Add(request.q_positions[i]);
  return hash.value();
}

std::uint64_t OptionsHash(const AttentionRequest& request) {
  Hash hash;
  hash.Add(request.sm_scale.has_value());
  hash.Add(request.sm_scale.value_or(0.0f));
  hash.Add(request.q_scale);
  hash.Add(request.logits_soft_cap);
  hash.Add(static_cast<int>(request.mask));
  hash.Add(request.window_left);
  hash.Add(request.window_right);
  hash.Add(static_cast<int>(request.lse_base));
  hash.Add(request.bias_before_cap);
  hash.Add(request.kv_settled);
  hash.Add(request.alibi.has_value());
  if (request.alibi) hash.Add(static_cast<int>(request.alibi->origin));
  hash.Add(request.rope.has_value());
  if (request.rope) AddRope(hash, *request.rope);
  hash.Add(request.q_positions.defined());
  for (const Segment& segment : request.segments) {
    hash.Add(segment.paged() != nullptr);
    AddSide(hash, segment.k());
    AddSide(hash, segment.v());
    hash.Add(static_cast<std::uint64_t>(segment.owners.size()));
    for (std::int32_t owner : segment.owners) hash.Add(owner);
  }
  return hash.value();
}

}  // namespace kvilt::plan
