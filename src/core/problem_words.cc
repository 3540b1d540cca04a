// The table of words, and those about sizes, query, output and data.
#include "src/core/problem_words.h"

#include <algorithm>

#include "src/core/problem_word_kinds.h"

namespace kvilt::core {
namespace {

constexpr std::int64_t kMaxBatch = 1 << 20;

const Names<Phase> kPhases = {
    {"decode", Phase::kDecode}, {"prefill", Phase::kPrefill}, {"verify", Phase::kVerify}};

template <class A, class B>
Word MakePads(std::string_view name, std::string_view help, A head, B row) {
  return {"query and output",
          std::string(name),
          "HEAD[/ROW]",
          help,
          [head, row](std::string_view text, Draft& draft) {
            return ParsePair(text, 0, 0, &head(draft.problem), &row(draft.problem));
          },
          [head, row](const Problem& p) -> std::optional<std::string> {
            if (head(p) == 0 && row(p) == 0) return std::nullopt;
            return FormatPair(head(p), row(p), 0);
          }};
}

}  // namespace

void AddQueryWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "query and output";
  words.push_back(MakeName<DType>(
      kSection, "q_dtype",
      {{"f32", DType::kF32},
       {"bf16", DType::kBF16},
       {"f16", DType::kF16},
       {"e4m3", DType::kE4M3},
       {"e5m2", DType::kE5M2},
       {"nvfp4", DType::kNVFP4}},
      "element type of Q; e5m2 can be written, to see it refused",
      [](auto& p) -> auto& { return p.q_dtype; }));
  words.push_back(MakeNumber(
      kSection, "q_scale", "X", "decode multiplier of Q (default: 1; chosen for a quantized Q)",
      [](auto& p) -> auto& { return p.q_scale; }));
  words.push_back(MakePads(
      "q_pad", "unused elements behind each head / each row of q",
      [](auto& p) -> auto& { return p.q_head_pad; }, [](auto& p) -> auto& { return p.q_row_pad; }));
  words.push_back(MakeName<DType>(
      kSection, "out", {{"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}},
      "element type of out", [](auto& p) -> auto& { return p.out_dtype; }));
  words.push_back(MakePads(
      "out_pad", "the same of out; lse is padded by one element where out is",
      [](auto& p) -> auto& { return p.out_head_pad; },
      [](auto& p) -> auto& { return p.out_row_pad; }));
  words.push_back(MakeInteger(
      kSection, "extra_rows", 0, "rows of q, out and lse that no request owns",
      [](auto& p) -> auto& { return p.extra_rows; }));
  words.push_back({kSection, "lse", "natural|two|none", "base of the returned log-sum-exp, or none",
                   [](std::string_view text, Draft& draft) -> std::string {
                     draft.problem.lse = text != "none";
                     draft.problem.lse_base = text == "two" ? LseBase::kTwo : LseBase::kNatural;
                     return text == "natural" || text == "two" || text == "none"
                                ? ""
                                : "natural|two|none";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (!p.lse) return "none";
                     if (p.lse_base == LseBase::kTwo) return "two";
                     return std::nullopt;
                   }});
}

void AddSizeWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "sizes";
  words.push_back({kSection, "b", "N >= 1", "requests; a list of q or kv says it too",
                   [](std::string_view text, Draft& draft) -> std::string {
                     const auto value = ParseInteger(text);
                     if (!value || *value < 1 || *value > kMaxBatch)
                       return fmt::format("an integer in 1..{}", kMaxBatch);
                     draft.batch = *value;
                     return "";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (p.batch() == 1) return std::nullopt;
                     return fmt::format("{}", p.batch());
                   }});
  const auto lengths = [](std::vector<std::int64_t> Draft::*member) {
    return [member](std::string_view text, Draft& draft) -> std::string {
      std::string expected = ParseList(text, &(draft.*member));
      const auto& values = draft.*member;
      if (expected.empty() &&
          std::any_of(values.begin(), values.end(), [](auto n) { return n < 0; })) {
        expected = "lengths >= 0";
      }
      return expected;
    };
  };
  const auto format = [](const std::vector<std::int64_t>& values) {
    const bool same = std::all_of(values.begin(), values.end(),
                                  [&](std::int64_t n) { return n == values.front(); });
    return same ? fmt::format("{}", values.front()) : FormatList(values);
  };
  words.push_back(
      {kSection, "q", "list", "query rows per request: 4, or 1,4x5 (one of 1, four of 5)",
       lengths(&Draft::q_len), [format](const Problem& p) -> std::optional<std::string> {
         bool implied = true;
         for (std::size_t r = 0; r < p.q_len.size(); ++r) {
           implied &= p.q_len[r] == DefaultQueryRows(p.phase, p.kv_len[r]);
         }
         if (implied) return std::nullopt;
         return format(p.q_len);
       }});
  words.push_back(
      {kSection, "kv", "list", "keys per request, all segments: 4096, 128k, 131072,63x1024",
       lengths(&Draft::kv_len),
       [format](const Problem& p) -> std::optional<std::string> { return format(p.kv_len); }});
  words.push_back({kSection, "heads", "Q/KV", "query heads / KV heads",
                   [](std::string_view text, Draft& draft) -> std::string {
                     std::int64_t q = 0, kv = 0;
                     const std::string expected = ParsePair(text, 1, std::nullopt, &q, &kv);
                     if (!expected.empty() || q > 65536 || kv > 65536) {
                       return "query heads / KV heads in 1..65536, such as 32/8";
                     }
                     draft.problem.q_heads = static_cast<int>(q);
                     draft.problem.kv_heads = static_cast<int>(kv);
                     return "";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     return fmt::format("{}/{}", p.q_heads, p.kv_heads);
                   }});
  words.push_back({kSection, "d", "QK[/VO]", "head dim, of q and k / of v and out",
                   [](std::string_view text, Draft& draft) -> std::string {
                     std::int64_t qk = 0, vo = 0;
                     const std::string expected = ParsePair(text, 1, std::nullopt, &qk, &vo);
                     if (!expected.empty() || qk > 65536 || vo > 65536) {
                       return "a head dim in 1..65536, or two such as 512/256";
                     }
                     draft.problem.head_dim_qk = static_cast<int>(qk);
                     draft.problem.head_dim_vo = static_cast<int>(vo);
                     return "";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     return FormatPair(p.head_dim_qk, p.head_dim_vo, p.head_dim_qk);
                   }});
}

void AddDataWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "data";
  words.push_back(MakeNumber(
      kSection, "sigma", "X >= 0", "standard deviation of the scores: 0.3, 0.9 diffuse, 5.6 peaked",
      [](auto& p) -> auto& { return p.sigma; }, 0));
  words.push_back(MakeInteger(
      kSection, "seed", 0, "of all random values", [](auto& p) -> auto& { return p.seed; }));
  words.push_back(
      {kSection, "ids", "list",
       "content of each request: the same id holds the same values in any batch",
       [](std::string_view text, Draft& draft) { return ParseList(text, &draft.problem.ids); },
       [](const Problem& p) -> std::optional<std::string> {
         if (p.ids.empty()) return std::nullopt;
         return FormatList(p.ids);
       }});
  words.push_back(MakeInteger(
      kSection, "prefix", 0, "first keys whose values all requests share",
      [](auto& p) -> auto& { return p.prefix; }));
  words.push_back(MakeName<DataForm>(
      kSection, "data",
      {{"lognormal", DataForm::kLogNormal},
       {"iid", DataForm::kIid},
       {"extreme", DataForm::kExtreme}},
      "token magnitudes vary, or not; extreme: q = 64, k = -64, v = 1",
      [](auto& p) -> auto& { return p.data; }));
  words.push_back(MakeName<PoisonForm>(
      kSection, "poison",
      {{"pages", PoisonForm::kPages}, {"keys", PoisonForm::kKeys}, {"off", PoisonForm::kOff}},
      "NaN in what must not be read: unused bytes and unseen pages; "
      "also each unseen key; nowhere",
      [](auto& p) -> auto& { return p.poison; }));
}

const std::vector<Word>& Words() {
  static const std::vector<Word> words = [] {
    std::vector<Word> table;
    AddSizeWords(table);
    AddCacheWords(table);
    AddQueryWords(table);
    AddOptionWords(table);
    AddRopeWords(table);
    AddPlanWords(table);
    AddDataWords(table);
    return table;
  }();
  return words;
}

std::optional<Phase> ParsePhase(std::string_view text) {
  Phase phase{};
  if (!ParseName(kPhases, text, &phase).empty()) return std::nullopt;
  return phase;
}

std::string_view PhaseName(Phase phase) {
  for (const auto& [name, value] : kPhases) {
    if (value == phase) return name;
  }
  return "?";
}

std::int64_t DefaultQueryRows(Phase phase, std::int64_t kv_len) {
  switch (phase) {
    case Phase::kDecode:
      return 1;
    case Phase::kVerify:
      return 4;
    case Phase::kPrefill:
      return kv_len;
  }
  return 1;
}

}  // namespace kvilt::core
