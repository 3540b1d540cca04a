// The kinds of words that the table of the problem grammar is made of.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/core/problem_text.h"
#include "src/core/problem_words.h"

namespace kvilt::core {

inline const Names<bool> kOnOff = {{"on", true}, {"off", false}};

inline const Problem& Defaults() {
  static const Problem defaults;
  return defaults;
}

// An accessor is a generic lambda that works on Problem& and const Problem&.
template <class Access>
Word MakeInteger(std::string_view section, std::string_view name, std::int64_t min,
                 std::string_view help, Access access) {
  using T = std::remove_cvref_t<decltype(access(Defaults()))>;
  const std::string values = fmt::format("N >= {}", min);
  return {section,
          std::string(name),
          values,
          help,
          [access, min, values](std::string_view text, Draft& draft) -> std::string {
            const auto value = ParseInteger(text);
            if (!value || *value < min || std::cmp_greater(*value, std::numeric_limits<T>::max())) {
              return "an integer " + values;
            }
            access(draft.problem) = static_cast<T>(*value);
            return "";
          },
          [access](const Problem& p) -> std::optional<std::string> {
            if (access(p) == access(Defaults())) return std::nullopt;
            return fmt::format("{}", access(p));
          }};
}

template <class E, class Access>
Word MakeName(std::string_view section, std::string_view name, Names<E> names,
              std::string_view help, Access access) {
  return {section,
          std::string(name),
          ExpectedNames(names),
          help,
          [access, names](std::string_view text, Draft& draft) {
            return ParseName(names, text, &access(draft.problem));
          },
          [access, names](const Problem& p) -> std::optional<std::string> {
            if (access(p) == access(Defaults())) return std::nullopt;
            return FormatName(names, access(p));
          }};
}

// A switch: the bare word is `on`. A switch that is on by default is printed as word=off.
template <class Access>
Word MakeSwitch(std::string_view section, std::string_view name, std::string_view help,
                Access access) {
  Word word = MakeName<bool>(section, name, kOnOff, help, access);
  word.flag = true;
  return word;
}

// float, double or optional<float>; not below `min` where there is one.
template <class Access>
Word MakeNumber(std::string_view section, std::string_view name, std::string_view values,
                std::string_view help, Access access, std::optional<double> min = std::nullopt) {
  return {section,
          std::string(name),
          std::string(values),
          help,
          [access, min](std::string_view text, Draft& draft) -> std::string {
            using T = std::remove_cvref_t<decltype(access(draft.problem))>;
            const auto value = [&] {
              if constexpr (std::is_same_v<T, double>) return ParseNumber(text);
              if constexpr (!std::is_same_v<T, double>) return ParseFloat(text);
            }();
            if (!value || (min && *value < *min)) {
              return min ? fmt::format("a finite number >= {}", *min) : "a finite number";
            }
            access(draft.problem) = *value;
            return "";
          },
          [access](const Problem& p) -> std::optional<std::string> {
            if (access(p) == access(Defaults())) return std::nullopt;
            using T = std::remove_cvref_t<decltype(access(p))>;
            if constexpr (std::is_same_v<T, double>) return FormatNumber(access(p));
            if constexpr (std::is_same_v<T, float>) return FormatFloat(access(p));
            if constexpr (std::is_same_v<T, std::optional<float>>) return FormatFloat(*access(p));
          }};
}

// A word that sets both sides, and the two words that set one. Printed as one word when the sides
// agree and as two when they do not.
struct SideValue {
  std::string_view name;  // "layout"
  std::string_view both;  // The word for both, "layout" or "kv_dtype".
  std::string values;
  std::string_view help;
  std::function<std::string(std::string_view, SideSpec&)> parse;
  std::function<std::string(const SideSpec&)> print;
};

inline void AddSideWords(std::vector<Word>& words, std::string_view section,
                         const SideValue& value) {
  static const SideSpec side_defaults;
  words.push_back({section, std::string(value.both), value.values, value.help,
                   [value](std::string_view text, Draft& draft) {
                     std::string expected = value.parse(text, draft.problem.k);
                     return expected.empty() ? value.parse(text, draft.problem.v) : expected;
                   },
                   [value](const Problem& p) -> std::optional<std::string> {
                     const std::string k = value.print(p.k);
                     if (k != value.print(p.v) || k == value.print(side_defaults)) {
                       return std::nullopt;
                     }
                     return k;
                   }});
  for (const bool is_k : {true, false}) {
    words.push_back({section, fmt::format("{}_{}", is_k ? "k" : "v", value.name), value.values,
                     is_k ? "the same of K alone" : "of V alone",
                     [value, is_k](std::string_view text, Draft& draft) {
                       return value.parse(text, is_k ? draft.problem.k : draft.problem.v);
                     },
                     [value, is_k](const Problem& p) -> std::optional<std::string> {
                       const std::string mine = value.print(is_k ? p.k : p.v);
                       if (mine == value.print(is_k ? p.v : p.k)) return std::nullopt;
                       if (mine == value.print(side_defaults)) return std::nullopt;
                       return mine;
                     }});
  }
}

// "a" or "a/b", the second defaulting to `second` (or to the first when it is absent).
inline std::string ParsePair(std::string_view text, std::int64_t min,
                             std::optional<std::int64_t> second, std::int64_t* a, std::int64_t* b) {
  const auto fields = SplitText(text, '/');
  const auto first = ParseInteger(fields.front());
  const auto last = ParseInteger(fields.back());
  if (fields.size() > 2 || !first || !last || *first < min || *last < min) {
    return fmt::format("one or two integers >= {}, such as 4 or 4/2", min);
  }
  *a = *first;
  *b = fields.size() == 2 ? *last : second.value_or(*first);
  return "";
}

inline std::string FormatPair(std::int64_t a, std::int64_t b, std::int64_t implied) {
  return b == implied ? fmt::format("{}", a) : fmt::format("{}/{}", a, b);
}

template <class Access>
Word MakePositions(std::string_view section, std::string_view name, std::string_view help,
                   Access access) {
  using Kind = PositionSpec::Kind;
  return {section,
          std::string(name),
          "none|offset:N|random:N",
          help,
          [access](std::string_view text, Draft& draft) -> std::string {
            const auto fields = SplitText(text, ':');
            PositionSpec& spec = access(draft.problem);
            spec = {};
            if (text == "none") return "";
            const auto value = ParseInteger(fields.back());
            const bool random = fields.front() == "random";
            if (fields.size() != 2 || !value || (!random && fields.front() != "offset") ||
                (random && *value < 0)) {
              return "none, offset:N or random:N";
            }
            spec = {random ? Kind::kRandom : Kind::kOffset, *value};
            return "";
          },
          [access](const Problem& p) -> std::optional<std::string> {
            const PositionSpec& spec = access(p);
            if (spec.kind == Kind::kNone) return std::nullopt;
            return fmt::format("{}:{}", spec.kind == Kind::kRandom ? "random" : "offset",
                               spec.value);
          }};
}

// The sections of the table, by file.
void AddSizeWords(std::vector<Word>& words);
void AddCacheWords(std::vector<Word>& words);
void AddQueryWords(std::vector<Word>& words);
void AddOptionWords(std::vector<Word>& words);
void AddRopeWords(std::vector<Word>& words);
void AddPlanWords(std::vector<Word>& words);
void AddDataWords(std::vector<Word>& words);

}  // namespace kvilt::core
