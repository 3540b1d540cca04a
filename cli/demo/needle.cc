#include "cli/demo/needle.h"

#include <utility>

#include "cli/demo/call.h"
#include "cli/demo/parts.h"
#include "src/core/check.h"

namespace kvilt::cli::demo {
namespace {

constexpr std::int64_t kBins = 128;
constexpr std::int64_t kChannels = kBins + 8;  // One more for the needle; a head dim must be 8 * n.
constexpr std::uint16_t kBf16One = 0x3F80;

// bf16 [tokens, kv_heads, kChannels]
core::AlignedMemory OneHotRows(const Capture& capture, std::int64_t bin_tokens) {
  const std::int64_t tokens = capture.tokens(), heads = capture.kv_heads();
  core::AlignedMemory memory(static_cast<std::size_t>(tokens * heads * kChannels * 2));
  memory.Fill(0);
  auto* values = reinterpret_cast<std::uint16_t*>(memory.data());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::uint16_t* row = values + (t * heads + h) * kChannels;
      row[t / bin_tokens] = kBf16One;
      if (t == capture.needle.position) row[kBins] = kBf16One;
    }
  }
  return memory;
}

}  // namespace

Result<NeedleView> LookAtNeedle(const Device& device, const Capture& capture,
                                const Format& format) {
  NeedleView view;
  view.bin_tokens = (capture.tokens() + kBins - 1) / kBins;
  const core::AlignedMemory rows = OneHotRows(capture, view.bin_tokens);
  const TensorView v = TensorView::Dense(rows.data(), DType::kBF16,
                                         {capture.tokens(), capture.kv_heads(), kChannels});
  Format keys_only = format;
  for (FormatPart& part : keys_only.parts) part.v_dtype = DType::kBF16;
  const Result<StoredContext> context = Store(device, keys_only, capture.k(), v, 16);
  if (!context.ok()) return context.status();
  AttentionRequest request = capture.query.request;
  request.segments = context->Segments();
  const Result<Call> call = Call::Make(device, std::move(request));
  if (!call.ok()) return call.status();
  KVILT_RETURN_IF_ERROR(call->Run());
  const float* out = call->Row(capture.needle.query_row, capture.needle.q_head);
  view.bins.assign(out, out + (capture.tokens() + view.bin_tokens - 1) / view.bin_tokens);
  view.needle = static_cast<double>(out[kBins]);
  return view;
}

Result<AttentionProfile> RunProfile(const Device& device, const Capture& capture) {
  const Format original{"bf16", "", {{-1, DType::kBF16, DType::kBF16}}, false};
  const Format nvfp4{"NVFP4", "", {{-1, DType::kNVFP4, DType::kBF16}}, false};
  const Result<NeedleView> before = LookAtNeedle(device, capture, original);
  if (!before.ok()) return before.status();
  const Result<NeedleView> after = LookAtNeedle(device, capture, nvfp4);
  if (!after.ok()) return after.status();
  const Needle& needle = capture.needle;
  AttentionProfile profile;
  profile.layer = static_cast<int>(capture.layer);
  profile.head = static_cast<int>(needle.q_head);
  const IndexArray& positions = capture.query.request.q_positions;
  profile.query_position = positions.defined()
                               ? positions[needle.query_row]
                               : needle.query_row + capture.tokens() - capture.queries();
  profile.needle_position = needle.position;
  profile.query_text = needle.query_text;
  profile.key_text = needle.key_text;
  profile.bin_tokens = static_cast<double>(before->bin_tokens);
  profile.original = before->bins;
  profile.nvfp4 = after->bins;
  return profile;
}

}  // namespace kvilt::cli::demo
