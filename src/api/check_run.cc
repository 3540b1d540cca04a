#include "src/api/check_run.h"

#include <fmt/format.h>

#include <cstdint>

#include "src/core/check.h"
#include "src/plan/operands.h"
#include "src/plan/signature.h"
#include "src/plan/tensor_check.h"
#include "src/plan/validate.h"

namespace kvilt::api {
namespace {

using plan::FieldPath;

constexpr std::uintptr_t kWorkspaceAlignment = 256;

Status Differs(const FieldPath& path, std::string_view suffix, std::string_view found,
               std::string_view planned) {
  return Status::Precondition(path.str(suffix),
                              fmt::format("{}; the plan was made for {}", found, planned));
}

Status CompareTensor(const FieldPath& path, const TensorView& tensor,
                     const OperandSignature& planned, DeviceKind device) {
  if (tensor.dtype != planned.dtype) {
    return Differs(path, ".dtype", Name(tensor.dtype), Name(planned.dtype));
  }
  const auto rank = static_cast<int>(planned.shape.size());
  if (tensor.rank != rank) {
    return Differs(path, ".rank", fmt::to_string(tensor.rank), fmt::to_string(rank));
  }
  for (int dim = 0; dim < rank; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    if (tensor.shape[dim] != planned.shape[d]) {
      return Differs(path, fmt::format(".shape[{}]", dim), fmt::to_string(tensor.shape[dim]),
                     fmt::to_string(planned.shape[d]));
    }
    // A stride that is never stepped by means nothing.
    if (tensor.shape[dim] > 1 && tensor.stride[dim] != planned.stride[d]) {
      return Differs(path, fmt::format(".stride[{}]", dim), fmt::to_string(tensor.stride[dim]),
                     fmt::to_string(planned.stride[d]));
    }
  }
  if (tensor.device.kind != device) {
    return Status::Precondition(path.str(".device"), "not the device that the plan was made for");
  }
  KVILT_RETURN_IF_ERROR(plan::CheckDeviceIndex(tensor.device, path));
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (base % static_cast<std::uintptr_t>(planned.alignment) != 0) {
    return Differs(path, ".data", fmt::format("{} is not aligned so", tensor.data),
                   fmt::format("a base aligned to {} bytes", planned.alignment));
  }
  return {};
}

// An operand of the plan that the request does not give.
Status Missing(const Plan& plan, const AttentionRequest& request) {
  for (const OperandSignature& planned : plan.signature) {
    bool given = false;
    const Status status =
        plan::ForEachTensor(request, [&](const FieldPath& path, const TensorView&) {
          given |= path.Is(planned.operand);
          return Status();
        });
    KVILT_CHECK(status.ok());
    if (!given) {
      return Status::Precondition(planned.operand, "not given; the plan was made with it");
    }
  }
  return Status::Precondition("request", "other operands than the plan was made for");
}

// The host arrays that a run reads besides its tensors, each as a dense tensor.
template <class Visit>
Status ForEachArray(const AttentionRequest& request, Visit&& visit) {
  const auto index = [&visit](std::string_view prefix, std::string_view name,
                              const IndexArray& array) {
    return visit(FieldPath{prefix, name}, TensorView::Dense(array.data, array.dtype, {array.size}));
  };
  const auto global = [&visit](std::string_view prefix, std::string_view name,
                               const DecodeScale& scale) {
    return visit(FieldPath{prefix, name},
                 TensorView::Dense(scale.array, DType::kF32, {scale.array_size}));
  };
  KVILT_RETURN_IF_ERROR(index("", "q_indptr", request.q_indptr));
  KVILT_RETURN_IF_ERROR(index("", "mask_indptr", request.mask_indptr));
  KVILT_RETURN_IF_ERROR(index("", "q_positions", request.q_positions));
  if (request.rope) {
    KVILT_RETURN_IF_ERROR(index("", "rope.key_positions", request.rope->key_positions));
  }
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    const std::string prefix = fmt::format("segments[{}]", i);
    KVILT_RETURN_IF_ERROR(global(prefix, "k.global.array", segment.k().global));
    KVILT_RETURN_IF_ERROR(global(prefix, "v.global.array", segment.v().global));
    if (const RaggedKv* ragged = segment.ragged()) {
      KVILT_RETURN_IF_ERROR(index(prefix, "indptr", ragged->indptr));
      continue;
    }
    const PageTable& table = segment.paged()->table;
    KVILT_RETURN_IF_ERROR(index(prefix, "table.indptr", table.indptr));
    KVILT_RETURN_IF_ERROR(index(prefix, "table.indices", table.indices));
    KVILT_RETURN_IF_ERROR(index(prefix, "table.kv_len", table.kv_len));
    KVILT_RETURN_IF_ERROR(index(prefix, "table.last_page_len", table.last_page_len));
  }
  return {};
}

Status CheckApart(std::string_view written_name, const TensorView& written, const FieldPath& path,
                  const TensorView& other) {
  if (!written.defined() || !plan::MayOverlap(written, other)) return {};
  return Status::Invalid(std::string(written_name),
                         fmt::format("overlaps {}, expected memory of its own", path.str()));
}

}  // namespace

Status CheckOperands(const Plan& plan, const plan::PlanDataView& view,
                     const AttentionRequest& request) {
  if (request.segments.size() != static_cast<std::size_t>(view.header->segments)) {
    return Status::Precondition(
        "segments", fmt::format("{} segments; the plan was made for {}", request.segments.size(),
                                view.header->segments));
  }
  const std::size_t count = plan.signature.size();
  std::size_t next = 0;
  std::size_t found = 0;
  KVILT_RETURN_IF_ERROR(
      plan::ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) {
        std::size_t tried = 0;
        while (tried < count && !path.Is(plan.signature[(next + tried) % count].operand)) ++tried;
        if (tried == count) {
          return Status::Precondition(path.str(), "given; the plan was made without it");
        }
        const OperandSignature& planned = plan.signature[(next + tried) % count];
        next = (next + tried + 1) % count;
        ++found;
        return CompareTensor(path, tensor, planned, plan.spec.kind);
      }));
  return found == count ? Status() : Missing(plan, request);
}

Status CheckOptions(const Plan& plan, const AttentionRequest& request) {
  if (plan::PositionsHash(request) != plan.positions_hash) {
    return Status::Precondition("q_positions",
                                "not those whose window the plan was made for; plan "
                                "again or UpdatePlan");
  }
  if (plan::OptionsHash(request) == plan.options_hash) return {};
  return Status::Precondition(
      "request",
      "its options (scales, mask, window, positions, bias, RoPE, sink, layouts, owners) "
      "are not those the plan was made for; plan again");
}

Status CheckWorkspace(const Plan& plan, const AttentionRequest& request,
                      std::span<const std::byte> workspace) {
  const auto size = static_cast<std::int64_t>(workspace.size());
  if (size < plan.workspace_bytes) {
    return Status::Exhausted(
        "workspace", fmt::format("{} bytes; the plan needs {}", size, plan.workspace_bytes));
  }
  if (plan.workspace_bytes == 0) return {};
  if (workspace.data() == nullptr) return Status::Invalid("workspace", "null");
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0) {
    return Status::Invalid(
        "workspace", fmt::format("{} is not aligned to {} bytes",
                                 static_cast<const void*>(workspace.data()), kWorkspaceAlignment));
  }
  // What the run may write, no more: the rest of the caller's buffer is his.
  const auto used = TensorView::Dense(workspace.data(), DType::kU8, {plan.workspace_bytes});
  const auto apart = [&](const FieldPath& path, const TensorView& tensor) {
    return CheckApart("workspace", used, path, tensor);
  };
  KVILT_RETURN_IF_ERROR(plan::ForEachTensor(request, apart));
  return ForEachArray(request, apart);
}

Status CheckOutputsApartFromArrays(const AttentionRequest& request) {
  return ForEachArray(request, [&](const FieldPath& path, const TensorView& array) {
    Status status = CheckApart("out", request.out, path, array);
    return status.ok() ? CheckApart("lse", request.lse, path, array) : status;
  });
}

Status CheckRun(const Plan& plan, const plan::PlanDataView& view, const AttentionRequest& request,
                std::span<const std::byte> workspace) {
  KVILT_RETURN_IF_ERROR(CheckOperands(plan, view, request));
  KVILT_RETURN_IF_ERROR(CheckLengths(view, request));
  KVILT_RETURN_IF_ERROR(CheckOptions(plan, request));
  KVILT_RETURN_IF_ERROR(plan::CheckMemory(request, plan.spec.kind));
  KVILT_RETURN_IF_ERROR(CheckOutputsApartFromArrays(request));
  return CheckWorkspace(plan, request, workspace);
}

}  // namespace kvilt::api
