#include "cli/report/page.h"

#include <fmt/format.h>

#include "cli/report/style.h"
#include "cli/report/svg.h"

namespace kvilt::cli::report {
namespace {

std::string Element(std::string_view tag, std::string_view text) {
  return fmt::format("<{}>{}</{}>", tag, Escape(text), tag);
}

std::string TableLine(std::string_view tag, const std::vector<std::string>& cells) {
  std::string line = "<tr>";
  for (const std::string& cell : cells) line += Element(tag, cell);
  return line + "</tr>\n";
}

}  // namespace

Page::Page(std::string_view title) : title_(title) {}

void Page::Opening(std::string_view eyebrow, std::string_view headline, std::string_view lead) {
  body_ += fmt::format("<p class=\"eyebrow\">{}</p>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
                       Escape(eyebrow), Escape(headline), Escape(lead));
}

void Page::Cards(const std::vector<Card>& cards) {
  body_ += "<div class=\"cards\">\n";
  for (const Card& card : cards) {
    body_ += fmt::format("<div class=\"card\">{}{}</div>\n", Element("b", card.value),
                         Element("span", card.text));
  }
  body_ += "</div>\n";
}

void Page::Section(std::string_view heading) { body_ += Element("h2", heading) + "\n"; }

void Page::Paragraph(std::string_view text) { body_ += Element("p", text) + "\n"; }

void Page::Figure(std::string_view svg, std::string_view caption) {
  body_ += fmt::format("<figure>\n{}{}\n</figure>\n", svg, Element("figcaption", caption));
}

void Page::Table(const std::vector<std::string>& header,
                 const std::vector<std::vector<std::string>>& rows) {
  body_ +=
      "<div class=\"scroll\"><table>\n<thead>" + TableLine("th", header) + "</thead>\n<tbody>\n";
  for (const auto& row : rows) body_ += TableLine("td", row);
  body_ += "</tbody>\n</table></div>\n";
}

void Page::Facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl>\n";
  for (const auto& [name, value] : facts)
    body_ += Element("dt", name) + Element("dd", value) + "\n";
  body_ += "</dl>\n";
}

std::string Page::Finish() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      Escape(title_), kStyle, body_);
}

}  // namespace kvilt::cli::report
