// The operands of a Problem: owned memory, filled, poisoned and guarded, and the AttentionRequest
// that borrows it.
//
// Values depend on (seed, request id, segment, token, head) alone: the same request holds the same
// values in any batch, slot, page order, page size, layout, padding or cache kind. Caches are
// written directly as codes and scales; magnitudes are log-normal over tokens and cycle with the
// position, and queries are scaled so that scores have the standard deviation `sigma`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvilt/plan.h"
#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/core/problem.h"

namespace kvilt::core {

// Movable; the request's pointers stay valid for the life of the object, moves included.
// Not thread-safe while being changed.
class ProblemData {
 public:
  ProblemData(ProblemData&&) noexcept;
  ProblemData& operator=(ProblemData&&) noexcept;
  ~ProblemData();

  const Problem& problem() const;
  // Views of the owned memory. Copy it to change something for a negative control.
  const AttentionRequest& request() const;
  const PlanOptions& plan_options() const;

  // Fills out and lse, and the padding and guard zones around them, with `byte` in every byte
  // (0xFF is NaN in every output type). Done once by BuildProblem; call it before each run whose
  // result is looked at.
  void PoisonOutputs(std::uint8_t byte = 0xFF);
  // Refills everything in the caches that no row may see with `byte` instead (scales too).
  void PoisonCaches(std::uint8_t byte);
  // A workspace of exactly `bytes`, aligned to 256, filled with 0xFF, guard zones around it. Valid
  // until the next call.
  std::span<std::byte> Workspace(std::int64_t bytes);
  // Whether everything around out, lse and the workspace (guard zones, padding between rows, extra
  // rows) still holds what PoisonOutputs and Workspace wrote there. kRuntime says where it does
  // not.
  Status CheckGuards() const;

  // Bytes of all K and V rows with their scales, each key of each owner once (a shared segment
  // counts once): what a perfect kernel reads.
  std::int64_t kv_bytes() const;

  // What every tensor of the request says about where it lies. Pointers stay: for shapes, or for a
  // copy of Memory() elsewhere.
  void PlaceOn(DeviceId device);

  // Every block of memory that the request's tensors and the workspace lie in, guard zones
  // included. Of the index arrays page ids are among them; others stay on the host.
  std::vector<std::span<std::byte>> Memory();

  struct Impl;
  explicit ProblemData(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Errors: kInvalidArgument for a problem that cannot be laid out in memory (a shared segment longer
// than its owner's kv, interleaved4 on a page size that is no multiple of 4, ...);
// kResourceExhausted, before anything is made where the operands are larger than the memory that is
// to spare. About one second per GB of cache.
Result<ProblemData> BuildProblem(const Problem& problem);

// The same request with the same tables, lengths, shapes and strides, to plan for and never to run:
// caches, q and out are addresses with no memory behind them, so that it costs no
// more than its page tables (problem_limits.h bounds them).
// `device`: where tensors claim to be; tables and lengths stay on the host.
Result<ProblemData> BuildProblemShape(const Problem& problem, DeviceKind device = DeviceKind::kCpu);

}  // namespace kvilt::core
