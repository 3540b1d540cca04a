#include "src/core/problem_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace kvilt::core {
namespace {

constexpr std::int64_t kMaxListValues = 1 << 20;

template <class F>
std::optional<F> ParseReal(std::string_view text) {
  F value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool ParseItem(std::string_view text, std::int64_t* value) {
  const auto parsed = ParseInteger(text);
  if (parsed) *value = *parsed;
  return parsed.has_value();
}
bool ParseItem(std::string_view text, float* value) {
  const auto parsed = ParseFloat(text);
  if (parsed) *value = *parsed;
  return parsed.has_value();
}
std::string FormatItem(std::int64_t value) { return fmt::format("{}", value); }
std::string FormatItem(float value) { return FormatFloat(value); }

}  // namespace

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t at = text.find(separator);
    fields.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return fields;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::int64_t> ParseInteger(std::string_view text) {
  std::int64_t unit = 1;
  if (text.ends_with('k')) unit = 1024;
  if (text.ends_with('m')) unit = 1024 * 1024;
  if (unit != 1) text.remove_suffix(1);
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (value > std::numeric_limits<std::int64_t>::max() / unit) return std::nullopt;
  if (value < std::numeric_limits<std::int64_t>::min() / unit) return std::nullopt;
  return value * unit;
}

std::optional<double> ParseNumber(std::string_view text) { return ParseReal<double>(text); }
std::optional<float> ParseFloat(std::string_view text) { return ParseReal<float>(text); }
std::string FormatNumber(double value) { return fmt::format("{}", value); }
std::string FormatFloat(float value) { return fmt::format("{}", value); }

template <class T>
std::string ParseList(std::string_view text, std::vector<T>* values) {
  constexpr const char* kExpected = std::is_floating_point_v<T>
                                        ? "finite numbers such as 0.01 or 1,0.5,2x0.25"
                                        : "a list of values such as 131072,63x1024";
  values->clear();
  for (std::string_view field : SplitText(text, ',')) {
    std::int64_t count = 1;
    if (const std::size_t at = field.find('x'); at != std::string_view::npos) {
      const auto repeat = ParseInteger(field.substr(0, at));
      if (!repeat || *repeat < 1) return kExpected;
      count = *repeat;
      field.remove_prefix(at + 1);
    }
    T value{};
    if (!ParseItem(field, &value)) return kExpected;
    if (count > kMaxListValues - static_cast<std::int64_t>(values->size())) {
      return "at most 1048576 values";
    }
    values->insert(values->end(), static_cast<std::size_t>(count), value);
  }
  return "";
}

template <class T>
std::string FormatList(const std::vector<T>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i + 1;
    while (end < values.size() && values[end] == values[i]) ++end;
    if (!text.empty()) text += ",";
    if (end - i > 1) text += fmt::format("{}x", end - i);
    text += FormatItem(values[i]);
    i = end;
  }
  return text;
}

template std::string ParseList(std::string_view, std::vector<std::int64_t>*);
template std::string ParseList(std::string_view, std::vector<float>*);
template std::string FormatList(const std::vector<std::int64_t>&);
template std::string FormatList(const std::vector<float>&);

std::string ParseCacheDType(std::string_view text, DType* value) {
  const auto dtype = ParseDType(text);
  if (!dtype || !IsCacheDType(*dtype)) return "f32|bf16|f16|e4m3|e5m2|nvfp4";
  *value = *dtype;
  return "";
}

}  // namespace kvilt::core
