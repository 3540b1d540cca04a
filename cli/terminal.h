// What every command uses to speak to a person: errors, numbers, tables, one line of progress.
// Results go to stdout, errors and progress to stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/status.h"

namespace kvilt::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // The work was understood and failed.
inline constexpr int kExitUsage = 2;   // The command line or a problem text is wrong.

// Prints "kvilt: <message>" to stderr, control bytes made visible, and returns `exit_code`.
int Fail(std::string_view message, int exit_code = kExitFailed);
// The same for a library error: kExitUsage for kInvalidArgument, else kExitFailed.
int Fail(const Status& status);

// "512 B", "37.7 MB", "1.21 GB": decimal units, three digits.
std::string HumanBytes(double bytes);
// "850 ns", "12.3 us", "4.56 ms", "1.20 s".
std::string HumanTime(double us);
// "2048" -> "2k", "131072" -> "128k", "1000" -> "1000": exact powers of 1024 only.
std::string HumanTokens(std::int64_t tokens);
// Three significant digits, without an exponent between 1e-3 and 1e6: "0.0951", "1.2e-7".
std::string HumanNumber(double value);
// Two significant digits with an exponent, "7.3e-4"; "0" for zero.
std::string HumanError(double value);

// Whether a person watches the stream.
bool StdoutIsTerminal();
bool StderrIsTerminal();
// By the values of TERM and NO_COLOR: whether a terminal follows escape sequences, and whether the
// person wants text with style.
bool TakesEscapes(const std::optional<std::string>& term);
bool WantsStyle(const std::optional<std::string>& no_color, const std::optional<std::string>& term);
// `text` in bold when stdout is a terminal where style is wanted, else as it is.
std::string Bold(std::string_view text);

// One line on stderr that rewrites itself, at most ten times a second, and only on a terminal; gone
// when the object is. Not thread-safe.
class Progress {
 public:
  // `total` = 0: no count is shown.
  explicit Progress(std::string label, std::int64_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(std::int64_t done, std::string_view what = {});
  void Clear();  // Removes the line, so that results can be printed.

 private:
  std::string label_;
  std::int64_t total_;
  bool active_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

// Columns that line up. The first column is flush left, the others flush right unless named in
// `left`.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<std::size_t> left = {0});
  void Add(std::vector<std::string> row);  // Shorter rows are padded with empty cells.
  // Every line begins with `indent` spaces and ends in a newline; the header is underlined.
  std::string Render(int indent = 2) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::size_t> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvilt::cli
