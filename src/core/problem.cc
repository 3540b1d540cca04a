#include "src/core/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "src/core/check.h"
#include "src/core/printable.h"
#include "src/core/problem_text.h"
#include "src/core/problem_words.h"

namespace kvilt::core {
namespace {

std::vector<std::string_view> SplitWords(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(kSpace), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

// Edits (insert, delete, replace, swap of neighbours) between two words.
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min(
          {cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

Status UnknownWord(std::string_view text, std::string_view name) {
  const Word* nearest = nullptr;
  // More than two edits, or than a third of the word, is no suggestion.
  int best = static_cast<int>(std::clamp<std::size_t>(name.size() / 3, 1, 2)) + 1;
  for (const Word& word : Words()) {
    const int distance = EditDistance(name, word.name);
    if (distance < best) {
      best = distance;
      nearest = &word;
    }
  }
  const std::string hint = nearest ? fmt::format("did you mean {}?", nearest->name)
                                   : "`kvilt problems --help` lists all";
  return Status::Invalid(Printable(text), fmt::format("no such word; {}", hint));
}

// Which words were given, with their values.
using Given = std::map<std::string_view, std::string_view>;

Status CollectWords(std::span<const std::string_view> texts, Given* given) {
  for (std::string_view text : texts) {
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const auto word =
        std::find_if(Words().begin(), Words().end(), [&](const Word& w) { return w.name == name; });
    if (word == Words().end()) return UnknownWord(text, name);
    std::string_view value = "on";
    if (equals != std::string_view::npos) {
      value = text.substr(equals + 1);
    } else if (!word->flag) {
      return Status::Invalid(Printable(text),
                             fmt::format("expected {}={}", word->name, word->values));
    }
    if (!given->emplace(word->name, value).second) {
      return Status::Invalid(Printable(text), "given twice, expected once");
    }
  }
  return {};
}

Status Broadcast(std::string_view word, std::int64_t batch, std::vector<std::int64_t>* values) {
  if (values->size() == 1) values->resize(static_cast<std::size_t>(batch), values->front());
  if (static_cast<std::int64_t>(values->size()) == batch) return {};
  return Status::Invalid(std::string(word), fmt::format("{} values, expected 1 or {} (the batch)",
                                                        values->size(), batch));
}

Status SettleLengths(Phase phase, Draft* draft) {
  std::int64_t batch = draft->batch;
  if (batch == 0) {
    batch = static_cast<std::int64_t>(std::max(draft->kv_len.size(), draft->q_len.size()));
  }
  KVILT_RETURN_IF_ERROR(Broadcast("kv", batch, &draft->kv_len));
  if (draft->q_len.empty()) {
    for (std::int64_t kv : draft->kv_len) draft->q_len.push_back(DefaultQueryRows(phase, kv));
  }
  KVILT_RETURN_IF_ERROR(Broadcast("q", batch, &draft->q_len));
  const auto ids = draft->problem.ids.size();
  if (ids != 0 && static_cast<std::int64_t>(ids) != batch) {
    return Status::Invalid("ids", fmt::format("{} values, expected {} (the batch)", ids, batch));
  }
  draft->problem.q_len = draft->q_len;
  draft->problem.kv_len = draft->kv_len;
  return {};
}

Status SettleSegments(Draft* draft) {
  Problem& problem = draft->problem;
  problem.segments = draft->shared;
  if (!draft->shared.empty() && draft->segments.empty()) draft->segments.emplace_back();
  problem.segments.insert(problem.segments.end(), draft->segments.begin(), draft->segments.end());
  std::vector<std::int64_t> shared_keys(static_cast<std::size_t>(problem.batch()), 0);
  for (const SegmentSpec& segment : draft->shared) {
    for (std::int32_t owner : segment.owners) {
      if (owner >= problem.batch()) {
        return Status::Invalid("shared", fmt::format("owner {}, expected 0 to {} (the batch)",
                                                     owner, problem.batch() - 1));
      }
      auto& keys = shared_keys[static_cast<std::size_t>(owner)];
      keys += segment.length;
      const auto kv_len = problem.kv_len[static_cast<std::size_t>(owner)];
      if (keys > kv_len) {
        return Status::Invalid("shared", fmt::format("{} keys for request {}, expected at most its "
                                                     "kv of {}",
                                                     keys, owner, kv_len));
      }
    }
  }
  return {};
}

}  // namespace

bool operator==(const RopeSpec& a, const RopeSpec& b) {
  const auto smoothing = [](const RopeSpec& rope) {
    const Rope::Llama31 none{0, 0, 0};
    const auto& value = rope.llama31.value_or(none);
    return std::tuple(rope.llama31.has_value(), value.low_freq_factor, value.high_freq_factor,
                      value.original_length);
  };
  return std::tie(a.pairing, a.frequency, a.theta, a.dim, a.scale, a.key_positions) ==
             std::tie(b.pairing, b.frequency, b.theta, b.dim, b.scale, b.key_positions) &&
         smoothing(a) == smoothing(b);
}

Result<Problem> ParseProblem(std::string_view text) {
  const std::vector<std::string_view> texts = SplitWords(text);
  const auto phase = texts.empty() ? std::nullopt : ParsePhase(texts.front());
  if (!phase) {
    return Status::Invalid(texts.empty() ? "problem" : Printable(texts.front()),
                           "expected a problem that begins with decode, prefill or verify, such as "
                           "`decode b=8 kv=4096 heads=32/8 d=128`");
  }
  Given given;
  KVILT_RETURN_IF_ERROR(CollectWords(std::span(texts).subspan(1), &given));
  Draft draft;
  draft.problem.phase = *phase;
  // In table order, so that a word for both sides never undoes the word of one side.
  for (const Word& word : Words()) {
    const auto it = given.find(word.name);
    if (it == given.end()) continue;
    if (const std::string expected = word.parse(it->second, draft); !expected.empty()) {
      return Status::Invalid(fmt::format("{}={}", word.name, Printable(it->second)),
                             fmt::format("expected {}", expected));
    }
  }
  KVILT_RETURN_IF_ERROR(SettleLengths(*phase, &draft));
  KVILT_RETURN_IF_ERROR(SettleSegments(&draft));
  return draft.problem;
}

std::string ToText(const Problem& problem) {
  std::string text(PhaseName(problem.phase));
  for (const Word& word : Words()) {
    const auto value = word.print(problem);
    if (!value) continue;
    text += word.flag && *value == "on" ? fmt::format(" {}", word.name)
                                        : fmt::format(" {}={}", word.name, *value);
  }
  return text;
}

Result<std::vector<Problem>> ParseProblemFile(std::string_view text, std::string_view name) {
  std::vector<Problem> problems;
  std::int64_t number = 0;
  for (std::string_view line : SplitText(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (SplitWords(line).empty()) continue;
    auto problem = ParseProblem(line);
    if (!problem) {
      return Status::Invalid(fmt::format("{}:{}", Printable(name), number),
                             problem.status().message());
    }
    problems.push_back(std::move(problem).value());
  }
  return problems;
}

namespace {

// The problems of a file; at least one.
Result<std::vector<Problem>> ReadProblemFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Status::Invalid(Printable(path),
                           "expected a problem (it begins with decode, prefill or verify) or a "
                           "readable problem file");
  }
  // A folder opens, and fails when it is read.
  std::string text;
  char buffer[4096];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    return Status::Invalid(Printable(path), "cannot be read, expected a problem file");
  }
  auto problems = ParseProblemFile(text, path);
  if (problems.ok() && problems->empty()) {
    return Status::Invalid(Printable(path), "no problem in the file, expected one a line");
  }
  return problems;
}

}  // namespace

Result<std::vector<Problem>> ProblemsFromArguments(std::span<const std::string> arguments) {
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < arguments.size();) {
    const auto words = SplitWords(arguments[i]);
    if (words.empty() || !ParsePhase(words.front())) {
      auto read = ReadProblemFile(arguments[i++]);
      if (!read) return read.status();
      problems.insert(problems.end(), read->begin(), read->end());
      continue;
    }
    // The words of one problem may come as one argument or as several.
    std::string text = arguments[i++];
    for (; i < arguments.size(); ++i) {
      const auto next = SplitWords(arguments[i]);
      if (next.empty() || ParsePhase(next.front()) || std::ifstream(arguments[i])) break;
      text += " " + arguments[i];
    }
    auto problem = ParseProblem(text);
    if (!problem) return problem.status();
    problems.push_back(std::move(problem).value());
  }
  return problems;
}

std::string GrammarHelp() {
  std::string text =
      "A problem is one line: decode, prefill or verify, then words in any order.\n\n"
      "  decode b=8 kv=4096 heads=32/8 d=128 page=16 kv_dtype=nvfp4\n"
      "  decode kv=131072,63x1024 kv_dtype=nvfp4 split=fixed:512     one long request, 63 short\n"
      "  prefill q=512 kv=8192 heads=9/3 d=64 window=1023 cap=30     512 new rows, 7680 old keys\n"
      "  verify b=4 kv=1000 mask=tree                                4 draft rows per request\n"
      "  decode b=8 kv=4096 shared=2048:0-7 segments=64:bf16,rest:nvfp4,16:bf16\n\n"
      "decode means q=1, verify q=4, prefill q=kv unless q is given. A number may end in k (1024)\n"
      "or m; a list repeats with x. In a problem file each line is a problem, # starts a "
      "comment.\n";
  std::string_view section;
  std::size_t width = 0;
  const auto left = [](const Word& word) {
    return word.flag ? word.name : fmt::format("{}={}", word.name, word.values);
  };
  for (const Word& word : Words())
    width = std::max(width, std::min<std::size_t>(left(word).size(), 38));
  const Problem defaults;
  for (const Word& word : Words()) {
    if (word.section != section) text += fmt::format("\n{}:\n", word.section);
    section = word.section;
    text += fmt::format("  {:<{}}  {}\n", left(word), width, word.help);
  }
  text += fmt::format("\nDefaults: {}, every other option off.\n",
                      "bf16 caches, hnd, paged, page=16, mask=causal, q and out bf16, lse natural, "
                      "split=auto, sigma=0.9, seed=1");
  return text;
}

}  // namespace kvilt::core
