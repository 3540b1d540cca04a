// A checker of XML well-formedness for tests: tags nest, attributes are quoted, entities are known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvilt::cli::report {

// Empty, or what is wrong and where.
inline std::string XmlProblem(std::string_view text) {
  std::vector<std::string> open;
  const auto where = [&](std::size_t i, const std::string& what) {
    return what + " near '" + std::string(text.substr(i, 60)) + "'";
  };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '&') {
      const std::string_view entity = text.substr(i, text.find(';', i) - i + 1);
      bool known = false;
      for (std::string_view name : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
        known = known || entity == name;
      }
      if (!known) return where(i, "unknown entity");
    }
    if (text[i] != '<') {
      ++i;
      continue;
    }
    const std::size_t end = text.find('>', i);
    if (end == std::string_view::npos) return where(i, "tag without end");
    const std::string_view tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    if (tag.starts_with("!DOCTYPE")) continue;
    if (tag.find('<') != std::string_view::npos) return where(end, "'<' inside a tag");
    std::size_t quotes = 0;
    for (char c : tag) quotes += c == '"' ? 1 : 0;
    if (quotes % 2 != 0) return where(end, "unbalanced quotes");
    const std::string name(
        tag.substr(tag.starts_with("/") ? 1 : 0,
                   tag.find_first_of(" /\n", 1) - (tag.starts_with("/") ? 1 : 0)));
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != std::string(tag.substr(1))) {
        return where(end, "</" + std::string(tag.substr(1)) + "> closes nothing");
      }
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(name);
    }
  }
  return open.empty() ? std::string() : "<" + open.back() + "> is never closed";
}

}  // namespace kvilt::cli::report
