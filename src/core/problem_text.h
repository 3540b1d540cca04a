// Values of the problem grammar <-> text. A parser returns an empty string, or what it expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvilt/dtype.h"

namespace kvilt::core {

// Fields between separators; "a,,b" has an empty one, "" has exactly one.
std::vector<std::string_view> SplitText(std::string_view text, char separator);

// A decimal integer with an optional suffix k = 1024 or m = 1024 k. Empty for anything else.
std::optional<std::int64_t> ParseInteger(std::string_view text);

// A finite decimal number.
std::optional<double> ParseNumber(std::string_view text);
std::optional<float> ParseFloat(std::string_view text);
std::string FormatNumber(double value);  // The shortest text that parses to the same value.
std::string FormatFloat(float value);

// "131072,63x1024": values with optional repeat counts. At most 2^20 values.
template <class T>
std::string ParseList(std::string_view text, std::vector<T>* values);
template <class T>
std::string FormatList(const std::vector<T>& values);

// One of a few names.
template <class E>
using Names = std::vector<std::pair<std::string_view, E>>;

template <class E>
std::string ExpectedNames(const Names<E>& names) {
  std::string text;
  for (const auto& [name, value] : names) {
    if (!text.empty()) text += "|";
    text += name;
  }
  return text;
}

template <class E>
std::string ParseName(const Names<E>& names, std::string_view text, E* value) {
  for (const auto& [name, candidate] : names) {
    if (name == text) {
      *value = candidate;
      return "";
    }
  }
  return ExpectedNames(names);
}

template <class E>
std::string FormatName(const Names<E>& names, E value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return std::string(name);
  }
  return "?";
}

std::string ParseCacheDType(std::string_view text, DType* value);

}  // namespace kvilt::core
