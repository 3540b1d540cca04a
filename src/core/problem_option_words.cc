// Words about scores, masks, RoPE and the plan.
#include "src/core/printable.h"
#include "src/core/problem_word_kinds.h"

namespace kvilt::core {
namespace {

// Words of RoPE other than `rope` itself switch it on, with the defaults for the rest.
RopeSpec& RopeOf(Problem& p) {
  if (!p.rope) p.rope.emplace();
  return *p.rope;
}
const RopeSpec& RopeOf(const Problem& p) {
  static const RopeSpec defaults;
  return p.rope ? *p.rope : defaults;
}

}  // namespace

void AddRopeWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "RoPE";
  static const Names<RopePairing> kPairings = {{"half", RopePairing::kHalf},
                                               {"interleaved", RopePairing::kInterleaved}};
  words.push_back({kSection, "rope", ExpectedNames(kPairings),
                   "rotate q and k in the kernel, and which elements pair up; any word of this "
                   "section alone does so too, with the defaults (half, theta 10000) for the rest",
                   [](std::string_view text, Draft& draft) {
                     return ParseName(kPairings, text, &RopeOf(draft.problem).pairing);
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (!p.rope) return std::nullopt;
                     return FormatName(kPairings, p.rope->pairing);
                   }});
  words.push_back(MakeName<RopeFrequency>(
      kSection, "rope_frequency",
      {{"rotary", RopeFrequency::kRotary}, {"proportional", RopeFrequency::kProportional}},
      "theta^(-2i/rope_dim) or theta^(-2i/d)",
      [](auto& p) -> auto& { return RopeOf(p).frequency; }));
  words.push_back(MakeNumber(
      kSection, "rope_theta", "X > 0", "base of the frequencies",
      [](auto& p) -> auto& { return RopeOf(p).theta; }));
  words.push_back(MakeInteger(
      kSection, "rope_dim", 0, "elements that rotate, even; 0 = all",
      [](auto& p) -> auto& { return RopeOf(p).dim; }));
  words.push_back(MakeNumber(
      kSection, "rope_scale", "X > 0", "divides the angles",
      [](auto& p) -> auto& { return RopeOf(p).scale; }));
  words.push_back(
      {kSection, "rope_llama31", "LOW/HIGH/LENGTH",
       "Llama 3.1 smoothing: low and high frequency factors, original length (1/4/8192)",
       [](std::string_view text, Draft& draft) -> std::string {
         const auto fields = SplitText(text, '/');
         Rope::Llama31 value;
         double* parts[] = {&value.low_freq_factor, &value.high_freq_factor,
                            &value.original_length};
         for (std::size_t i = 0; i < 3; ++i) {
           const auto part = fields.size() == 3 ? ParseNumber(fields[i]) : std::nullopt;
           if (!part) return "three numbers, such as 1/4/8192";
           *parts[i] = *part;
         }
         RopeOf(draft.problem).llama31 = value;
         return "";
       },
       [](const Problem& p) -> std::optional<std::string> {
         const auto& value = RopeOf(p).llama31;
         if (!value) return std::nullopt;
         return fmt::format("{}/{}/{}", value->low_freq_factor, value->high_freq_factor,
                            value->original_length);
       }});
  words.push_back(MakePositions(
      kSection, "key_positions", "positions of the keys for RoPE",
      [](auto& p) -> auto& { return RopeOf(p).key_positions; }));
}

void AddOptionWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "scores and masks";
  words.push_back(MakeNumber(
      kSection, "sm_scale", "X", "score scale (default 1/sqrt(d))",
      [](auto& p) -> auto& { return p.sm_scale; }));
  words.push_back(MakeNumber(
      kSection, "cap", "X", "soft cap of the scores; 0 = off",
      [](auto& p) -> auto& { return p.cap; }));
  words.push_back(MakeName<MaskMode>(
      kSection, "mask",
      {{"none", MaskMode::kNone},
       {"causal", MaskMode::kCausal},
       {"custom", MaskMode::kCustom},
       {"tree", MaskMode::kTree}},
      "which keys a row sees (default causal)", [](auto& p) -> auto& { return p.mask; }));
  words.push_back(MakeSwitch(
      kSection, "mask_indptr", "pass where the mask bits of each request begin",
      [](auto& p) -> auto& { return p.mask_indptr; }));
  words.push_back({kSection, "window", "LEFT[/RIGHT]",
                   "keys seen before / after a row's position, inclusive; -1 = all",
                   [](std::string_view text, Draft& draft) {
                     return ParsePair(text, -1, -1, &draft.problem.window_left,
                                      &draft.problem.window_right);
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (p.window_left == -1 && p.window_right == -1) return std::nullopt;
                     return FormatPair(p.window_left, p.window_right, -1);
                   }});
  words.push_back(MakePositions(
      kSection, "q_positions", "positions of the rows for window and RoPE",
      [](auto& p) -> auto& { return p.q_positions; }));
  static const Names<std::optional<AlibiOrigin>> kOrigins = {
      {"off", std::nullopt},
      {"bottom_right", AlibiOrigin::kBottomRight},
      {"row_index", AlibiOrigin::kRowIndex}};
  words.push_back(MakeName<std::optional<AlibiOrigin>>(
      kSection, "alibi", kOrigins, "linear position bias, slopes 2^(-8(h+1)/heads), and its origin",
      [](auto& p) -> auto& { return p.alibi; }));
  words.push_back(MakeSwitch(
      kSection, "bias_before_cap", "ALiBi before the soft cap, not after",
      [](auto& p) -> auto& { return p.bias_before_cap; }));
  words.push_back(MakeNumber(
      kSection, "sink", "X", "sink logit of head 0; other heads vary around it",
      [](auto& p) -> auto& { return p.sink; }));
  words.push_back(MakeSwitch(
      kSection, "kv_settled", "GPU: loads may start early",
      [](auto& p) -> auto& { return p.kv_settled; }));
}

void AddPlanWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "plan";
  words.push_back({kSection, "split", "auto|fixed:N|off", "cuts of the keys",
                   [](std::string_view text, Draft& draft) -> std::string {
                     Problem& p = draft.problem;
                     p.fixed_split_rows = 0;
                     if (text == "auto" || text == "off") {
                       p.split = text == "auto" ? SplitMode::kAuto : SplitMode::kOff;
                       return "";
                     }
                     const auto rows =
                         text.starts_with("fixed:") ? ParseInteger(text.substr(6)) : std::nullopt;
                     if (!rows || *rows < 1) return "auto, off or fixed:N with N >= 1";
                     p.split = SplitMode::kFixed;
                     p.fixed_split_rows = *rows;
                     return "";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (p.split == SplitMode::kAuto) return std::nullopt;
                     if (p.split == SplitMode::kOff) return "off";
                     return fmt::format("fixed:{}", p.fixed_split_rows);
                   }});
  words.push_back(MakeInteger(
      kSection, "workspace", -1, "limit in bytes; -1 = none",
      [](auto& p) -> auto& { return p.workspace_limit_bytes; }));
  words.push_back(MakeName<Accuracy>(
      kSection, "accuracy",
      {{"normal", Accuracy::kNormal},
       {"near_exact", Accuracy::kNearExact},
       {"f32", Accuracy::kF32}},
      "how probabilities are kept", [](auto& p) -> auto& { return p.accuracy; }));
  words.push_back({kSection, "path", "name", "the path that must run, such as cpu/f32",
                   [](std::string_view text, Draft& draft) -> std::string {
                     draft.problem.path = text;
                     // What is printed again, in tables and reproducers, is fit for a terminal.
                     const bool printable = Printable(text, text.size()) == text;
                     return text.empty() || !printable ? "a name" : "";
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     if (p.path.empty()) return std::nullopt;
                     return p.path;
                   }});
  words.push_back(MakeSwitch(
      kSection, "cascade", "read shared segments once if it pays",
      [](auto& p) -> auto& { return p.cascade; }));
  words.push_back(MakeSwitch(
      kSection, "check_pages", "validate every page id when planning",
      [](auto& p) -> auto& { return p.check_pages; }));
}

}  // namespace kvilt::core
