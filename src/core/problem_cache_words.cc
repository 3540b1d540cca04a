// Words about the caches.
#include "src/core/problem_segments.h"
#include "src/core/problem_word_kinds.h"

namespace kvilt::core {
namespace {

void AddSideWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "cache";
  static const Names<KvLayout> kLayouts = {{"hnd", KvLayout::kHND}, {"nhd", KvLayout::kNHD}};
  AddSideWords(
      words, kSection,
      {"dtype", "kv_dtype", "f32|bf16|f16|e4m3|e5m2|nvfp4", "element type of K and V",
       [](std::string_view text, SideSpec& side) { return ParseCacheDType(text, &side.dtype); },
       [](const SideSpec& side) { return std::string(Name(side.dtype)); }});
  AddSideWords(words, kSection,
               {"layout", "layout", ExpectedNames(kLayouts),
                "axis order of K and V: heads before tokens, or tokens before heads",
                [](std::string_view text, SideSpec& side) {
                  return ParseName(kLayouts, text, &side.layout);
                },
                [](const SideSpec& side) { return FormatName(kLayouts, side.layout); }});
  AddSideWords(words, kSection,
               {"global", "global", "X, or one per KV head",
                "decode multiplier of K and V: 0.01, or 1,0.5,2x0.25",
                [](std::string_view text, SideSpec& side) { return ParseList(text, &side.global); },
                [](const SideSpec& side) { return FormatList(side.global); }});
  AddSideWords(words, kSection,
               {"pad", "pad", "ROW[/PAGE]",
                "unused storage elements behind each row / rows behind each page",
                [](std::string_view text, SideSpec& side) {
                  return ParsePair(text, 0, 0, &side.row_pad, &side.page_pad);
                },
                [](const SideSpec& side) { return FormatPair(side.row_pad, side.page_pad, 0); }});
  AddSideWords(words, kSection,
               {"shift", "shift", "N >= 0", "storage elements from an aligned address to the data",
                [](std::string_view text, SideSpec& side) -> std::string {
                  const auto value = ParseInteger(text);
                  if (!value || *value < 0) return "an integer >= 0";
                  side.shift = *value;
                  return "";
                },
                [](const SideSpec& side) { return fmt::format("{}", side.shift); }});
}

}  // namespace

void AddCacheWords(std::vector<Word>& words) {
  constexpr std::string_view kSection = "cache";
  AddSideWords(words);
  words.push_back(MakeName<ScaleLayout>(
      kSection, "scale_layout",
      {{"linear", ScaleLayout::kLinear}, {"interleaved4", ScaleLayout::kInterleaved4}},
      "order of V's NVFP4 scales", [](auto& p) -> auto& { return p.scale_layout; }));
  words.push_back(MakeName<bool>(
      kSection, "global_as", {{"value", false}, {"pointer", true}}, "how a single global is passed",
      [](auto& p) -> auto& { return p.global_by_pointer; }));
  words.push_back(MakeSwitch(
      kSection, "allow_unusual_scale", "accept globals outside [2^-20, 64]",
      [](auto& p) -> auto& { return p.allow_unusual_scale; }));
  words.push_back(MakeName<CacheKind>(
      kSection, "cache", {{"paged", CacheKind::kPaged}, {"ragged", CacheKind::kRagged}},
      "pages and a table, or one row range per request", [](auto& p) -> auto& { return p.cache; }));
  words.push_back(MakeInteger(
      kSection, "page", 1, "tokens per page", [](auto& p) -> auto& { return p.page_size; }));
  words.push_back(MakeName<TableForm>(
      kSection, "table", {{"csr", TableForm::kCsr}, {"padded", TableForm::kPadded}},
      "form of the page table", [](auto& p) -> auto& { return p.table; }));
  words.push_back(MakeName<LengthForm>(
      kSection, "lengths",
      {{"kv_len", LengthForm::kKvLen}, {"last_page_len", LengthForm::kLastPageLen}},
      "how lengths are passed (last_page_len: csr only)",
      [](auto& p) -> auto& { return p.lengths; }));
  words.push_back(MakeName<DType>(
      kSection, "index", {{"i32", DType::kI32}, {"i64", DType::kI64}}, "width of all index arrays",
      [](auto& p) -> auto& { return p.index; }));
  words.push_back(MakeName<bool>(
      kSection, "pages", {{"permuted", true}, {"ordered", false}}, "order of the pages in memory",
      [](auto& p) -> auto& { return p.permute_pages; }));
  words.push_back(MakeName<PoolForm>(
      kSection, "pool",
      {{"separate", PoolForm::kSeparate}, {"kv", PoolForm::kKv}, {"rows", PoolForm::kRows}},
      "memory of its own for each tensor; K and V interleaved per page; [data|scales] rows",
      [](auto& p) -> auto& { return p.pool; }));
  words.push_back({kSection, "segments", "list",
                   "64:bf16,rest:nvfp4/e4m3:page=8,16:ragged (length, K/V dtype, cache, page)",
                   [](std::string_view text, Draft& draft) {
                     return ParsePrivateSegments(text, &draft.segments);
                   },
                   [](const Problem& p) -> std::optional<std::string> {
                     const std::string text = FormatPrivateSegments(p.segments);
                     if (text.empty()) return std::nullopt;
                     return text;
                   }});
  words.push_back(
      {kSection, "shared", "list",
       "512:0-7 or 512:0-7:nvfp4,64:3+5 (length, owners): segments read once for all owners",
       [](std::string_view text, Draft& draft) { return ParseSharedSegments(text, &draft.shared); },
       [](const Problem& p) -> std::optional<std::string> {
         const std::string text = FormatSharedSegments(p.segments);
         if (text.empty()) return std::nullopt;
         return text;
       }});
}

}  // namespace kvilt::core
