#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "src/core/env.h"
#include "src/core/printable.h"
#include "src/core/problem_text.h"

namespace kvilt::cli {
namespace {

// Three significant digits of a value in [1, 1000).
std::string ThreeDigits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

// Columns that a UTF-8 text takes on a terminal; every code point here is one wide.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Pad(std::string_view text, std::size_t width, bool left) {
  const std::string space(width - std::min(width, Width(text)), ' ');
  return left ? std::string(text) + space : space + std::string(text);
}

}  // namespace

int Fail(std::string_view message, int exit_code) {
  std::fflush(stdout);
  // Messages quote files and arguments; those of the option parser have lines of their own.
  std::string text;
  for (const std::string_view line : core::SplitText(message, '\n')) {
    text += (text.empty() ? "" : "\n") + core::Printable(line, line.size());
  }
  fmt::print(stderr, "kvilt: {}\n", text);
  return exit_code;
}

int Fail(const Status& status) {
  const bool usage = status.code() == StatusCode::kInvalidArgument;
  return Fail(fmt::format("{}: {}", Name(status.code()), status.message()),
              usage ? kExitUsage : kExitFailed);
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{:.0f} B", bytes);
  double value = bytes / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{} {}", ThreeDigits(value), kUnits[unit]);
}

std::string HumanTime(double us) {
  if (us < 0.9995) return fmt::format("{:.0f} ns", us * 1e3);
  if (us < 999.5) return ThreeDigits(us) + " us";
  if (us < 999.5e3) return ThreeDigits(us / 1e3) + " ms";
  return ThreeDigits(us / 1e6) + " s";
}

std::string HumanTokens(std::int64_t tokens) {
  if (tokens >= 1 << 20 && tokens % (1 << 20) == 0) return fmt::format("{}M", tokens >> 20);
  if (tokens >= 1 << 10 && tokens % (1 << 10) == 0) return fmt::format("{}k", tokens >> 10);
  return fmt::format("{}", tokens);
}

std::string HumanNumber(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return "0";
  if (magnitude < 1e-3 || magnitude >= 1e6) return HumanError(value);
  const int decimals = std::max(0, 2 - static_cast<int>(std::floor(std::log10(magnitude))));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string HumanError(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return fmt::format("{}", value);
  std::string text = fmt::format("{:.1e}", value);  // Pads the exponent to two digits.
  const std::size_t digit = text.find('e') + 2;
  if (text[digit] == '0') text.erase(digit, 1);
  return text;
}

bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

bool TakesEscapes(const std::optional<std::string>& term) { return term != "dumb"; }

bool WantsStyle(const std::optional<std::string>& no_color,
                const std::optional<std::string>& term) {
  return no_color.value_or("").empty() && TakesEscapes(term);
}

std::string Bold(std::string_view text) {
  const bool styled = StdoutIsTerminal() && WantsStyle(core::ReadEnv(core::EnvVariable::kNoColor),
                                                       core::ReadEnv(core::EnvVariable::kTerm));
  return styled ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(total),
      active_(StderrIsTerminal() && TakesEscapes(core::ReadEnv(core::EnvVariable::kTerm))) {}

Progress::~Progress() { Clear(); }

void Progress::Update(std::int64_t done, std::string_view what) {
  if (!active_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && done < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  const std::string count = total_ > 0 ? fmt::format(" {}/{}", done, total_) : std::string();
  std::string line = fmt::format("{}{} {}", label_, count, what);
  if (line.size() > 78) line.resize(78);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
}

void Progress::Clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

Table::Table(std::vector<std::string> header, std::vector<std::size_t> left)
    : header_(std::move(header)), left_(std::move(left)) {}

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

std::string Table::Render(int indent) const {
  std::vector<std::size_t> widths;
  for (const std::string& cell : header_) widths.push_back(Width(cell));
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool left = std::find(left_.begin(), left_.end(), c) != left_.end();
      text += (c > 0 ? "  " : "") + Pad(row[c], widths[c], left);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (std::size_t width : widths) rule.emplace_back(width, '-');
  std::string text = line(header_) + line(rule);
  for (const auto& row : rows_) text += line(row);
  return text;
}

}  // namespace kvilt::cli
