// A self-contained HTML page that is also well-formed XML: no scripts, no external resources.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvilt::cli::report {

struct Card {
  std::string value;
  std::string text;
};

// Everything given is plain text and escaped here, but `svg`, which is an element of svg.h.
class Page {
 public:
  explicit Page(std::string_view title);

  void Opening(std::string_view eyebrow, std::string_view headline, std::string_view lead);
  void Cards(const std::vector<Card>& cards);
  void Section(std::string_view heading);
  void Paragraph(std::string_view text);
  void Figure(std::string_view svg, std::string_view caption);
  void Table(const std::vector<std::string>& header,
             const std::vector<std::vector<std::string>>& rows);
  void Facts(const std::vector<std::pair<std::string, std::string>>& facts);

  std::string Finish() const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace kvilt::cli::report
