// The words of the problem grammar, one table entry each: how to read it, when to print it, what
// it means. ParseProblem, ToText and GrammarHelp are loops over this table.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/problem.h"

namespace kvilt::core {

// A problem while it is being read: what can only be settled when all words are known.
struct Draft {
  Problem problem;
  std::int64_t batch = 0;           // 0 = not given.
  std::vector<std::int64_t> q_len;  // Empty = not given; else 1 or batch entries.
  std::vector<std::int64_t> kv_len = {1024};
  std::vector<SegmentSpec> shared;
  std::vector<SegmentSpec> segments;
};

struct Word {
  std::string_view section;
  std::string name;
  std::string values;  // "hnd|nhd", "N >= 1", ...
  std::string_view help;
  // Reads the value; returns what was expected, or an empty string.
  std::function<std::string(std::string_view value, Draft&)> parse;
  // The value to print, nothing when the word can be left out.
  std::function<std::optional<std::string>(const Problem&)> print;
  bool flag = false;  // May stand alone, which means "on".
};

const std::vector<Word>& Words();

// The first word of a problem.
std::optional<Phase> ParsePhase(std::string_view text);
std::string_view PhaseName(Phase phase);
// Query rows of a request when `q` is not given.
std::int64_t DefaultQueryRows(Phase phase, std::int64_t kv_len);

}  // namespace kvilt::core
