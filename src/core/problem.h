// The problem grammar: one line of text that names an attention problem completely, data included.
//
//   decode b=8 kv=4096 heads=32/8 d=128 page=16 kv_dtype=nvfp4
//   prefill q=512 kv=8192 mask=causal window=1023
//   decode b=64 kv=131072,63x1024 split=fixed:512
//
// `kvilt check`, `bench`, `plan` and `demo` read it, and so do the tests: a failure prints the line
// that reproduces it. Every option of the public API has a word; GrammarHelp() lists them all. The
// grammar describes, it does not judge: what a backend refuses (group ratios, head dims, ...) can
// be written down, so that the refusal can be seen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/plan.h"
#include "kvilt/request.h"
#include "kvilt/status.h"

namespace kvilt::core {

// The first word. It only chooses defaults: decode q=1, verify q=4, prefill q=kv.
enum class Phase : std::uint8_t { kDecode, kPrefill, kVerify };

enum class CacheKind : std::uint8_t { kPaged, kRagged };
enum class TableForm : std::uint8_t { kCsr, kPadded };
// kLastPageLen: lengths given as pages and `last_page_len` (CSR tables only).
enum class LengthForm : std::uint8_t { kKvLen, kLastPageLen };
// How the four tensors of a cache share memory. kSeparate: an allocation each. kKv: K and V
// interleaved per page, [pages, 2, ...] (ragged: per token or per head). kRows: data and scales in
// one row, [data | scales].
enum class PoolForm : std::uint8_t { kSeparate, kKv, kRows };
// kLogNormal: token magnitudes vary by token, head and block. kIid: they do not. kExtreme: q = 64,
// k = -64, v = 1, whatever the scales (logits of -524288 at d=128).
enum class DataForm : std::uint8_t { kLogNormal, kIid, kExtreme };
// What is filled with NaN and 0xFF. kPages: everything outside the addressed rows, and pages that
// no row can see. kKeys: also each single key that no row sees. kOff: those hold zeros.
enum class PoisonForm : std::uint8_t { kPages, kKeys, kOff };

// Positions of queries or keys. kNone: the default of the API, no array is passed.
struct PositionSpec {
  enum class Kind : std::uint8_t { kNone, kOffset, kRandom } kind = Kind::kNone;
  std::int64_t value =
      0;  // kOffset: added to the default position. kRandom: drawn from [0, value].
  friend bool operator==(const PositionSpec&, const PositionSpec&) = default;
};

// K or V of the cache, for all segments.
struct SideSpec {
  DType dtype = DType::kBF16;
  KvLayout layout = KvLayout::kHND;
  std::vector<float> global = {1.0f};  // One, or one per KV head.
  std::int64_t row_pad = 0;            // Extra storage elements behind each row (data and scales).
  std::int64_t page_pad = 0;  // Extra rows behind each page (ragged HND: behind each head).
  std::int64_t shift = 0;     // Storage elements from an aligned address to the first element.
  friend bool operator==(const SideSpec&, const SideSpec&) = default;
};

// One segment; what is absent is taken from the problem. Shared segments come first.
struct SegmentSpec {
  std::int64_t length = -1;  // -1 = the rest. Clamped to the keys that are left, so may become 0.
  std::optional<DType> k_dtype;
  std::optional<DType> v_dtype;
  std::optional<CacheKind> cache;
  std::optional<std::int64_t> page_size;
  std::vector<std::int32_t> owners;  // Not empty = shared by these requests, exactly `length` keys.
  friend bool operator==(const SegmentSpec&, const SegmentSpec&) = default;
};

struct RopeSpec {
  RopePairing pairing = RopePairing::kHalf;
  RopeFrequency frequency = RopeFrequency::kRotary;
  double theta = 10000.0;
  int dim = 0;
  double scale = 1.0;
  std::optional<Rope::Llama31> llama31;
  PositionSpec key_positions;
  friend bool operator==(const RopeSpec& a, const RopeSpec& b);
};

struct Problem {
  Phase phase = Phase::kDecode;
  // One entry per request. kv_len counts all segments, shared ones included.
  std::vector<std::int64_t> q_len = {1};
  std::vector<std::int64_t> kv_len = {1024};
  int q_heads = 32;
  int kv_heads = 8;
  int head_dim_qk = 128;
  int head_dim_vo = 128;

  SideSpec k;
  SideSpec v;
  ScaleLayout scale_layout = ScaleLayout::kLinear;  // Of V.
  bool global_by_pointer = false;  // One global passed as an array of size 1 instead of a value.
  bool allow_unusual_scale = false;
  CacheKind cache = CacheKind::kPaged;
  std::int64_t page_size = 16;
  TableForm table = TableForm::kCsr;
  LengthForm lengths = LengthForm::kKvLen;
  DType index = DType::kI32;  // Of every index array.
  bool permute_pages = true;
  PoolForm pool = PoolForm::kSeparate;
  std::vector<SegmentSpec> segments;  // Empty = one private segment of everything.

  DType q_dtype = DType::kBF16;
  std::optional<float> q_scale;  // Default: 1, or for a quantized Q what gives it a good range.
  std::int64_t q_head_pad = 0;   // Extra storage elements behind each head's row,
  std::int64_t q_row_pad = 0;    // and behind each token's heads.
  DType out_dtype = DType::kBF16;
  std::int64_t out_head_pad = 0;  // The same of out; lse gets one element per head and row.
  std::int64_t out_row_pad = 0;
  std::int64_t extra_rows = 0;  // Rows of q, out and lse behind the last request's.
  bool lse = true;
  LseBase lse_base = LseBase::kNatural;

  std::optional<float> sm_scale;
  float cap = 0.0f;
  MaskMode mask = MaskMode::kCausal;
  bool mask_indptr = false;  // The mask bits begin at an offset, and an array says where.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  PositionSpec q_positions;
  std::optional<AlibiOrigin> alibi;
  bool bias_before_cap = false;
  std::optional<RopeSpec> rope;
  std::optional<float> sink;  // Of head 0; the others vary around it.
  bool kv_settled = false;

  // PlanOptions.
  SplitMode split = SplitMode::kAuto;
  std::int64_t fixed_split_rows = 0;
  std::int64_t workspace_limit_bytes = -1;
  Accuracy accuracy = Accuracy::kNormal;
  std::string path;
  bool cascade = true;
  bool check_pages = true;

  // Data.
  double sigma = 0.9;  // Standard deviation of the scores (natural units) before cap and bias.
  std::uint64_t seed = 1;
  // Two requests with the same id (and length, dims, dtypes, seed) hold the same values, in
  // whatever batch, page or layout. Empty = 0, 1, 2, ...
  std::vector<std::int64_t> ids;
  std::int64_t prefix = 0;  // The first keys of all requests hold the same values (those that the
                            // first shared segment has).
  DataForm data = DataForm::kLogNormal;
  PoisonForm poison = PoisonForm::kPages;

  std::int64_t batch() const { return static_cast<std::int64_t>(kv_len.size()); }
  friend bool operator==(const Problem&, const Problem&) = default;
};

// Errors: kInvalidArgument whose message holds the offending word and what was expected there.
Result<Problem> ParseProblem(std::string_view text);

// The canonical line: words in a fixed order, defaults left out. ParseProblem(ToText(p)) == p for
// every p that ParseProblem can return.
std::string ToText(const Problem& problem);

// Problems of a command line. An argument that names a readable file stands for the problems in it
// (one a line, '#' starts a comment); anything else is problem text, and an argument that begins
// with a phase starts a new problem, so both `'decode b=8 kv=64'` and `decode b=8 kv=64` work.
// Errors: kInvalidArgument: a file that cannot be read or that holds no problem; a wrong problem.
Result<std::vector<Problem>> ProblemsFromArguments(std::span<const std::string> arguments);

// Problems of a text in the file format; `name` appears in errors as name:line.
Result<std::vector<Problem>> ParseProblemFile(std::string_view text, std::string_view name);

// All words with their meaning, defaults and examples, for --help.
std::string GrammarHelp();

// Keys of request r in segment s of the problem (see SegmentSpec::length); segments in the order
// of `problem.segments`, or the one implied segment.
std::int64_t SegmentLength(const Problem& problem, std::int64_t request, std::int64_t segment);

}  // namespace kvilt::core
