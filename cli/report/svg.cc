#include "cli/report/svg.h"

#include <fmt/format.h>

namespace kvilt::cli::report {
namespace {

std::string Coordinates(const std::vector<Point>& points) {
  std::string text;
  for (const Point& p : points) text += fmt::format("{:.1f},{:.1f} ", p.x, p.y);
  if (!text.empty()) text.pop_back();
  return text;
}

constexpr std::string_view AnchorName(Anchor anchor) {
  switch (anchor) {
    case Anchor::kStart:
      return "start";
    case Anchor::kMiddle:
      return "middle";
    case Anchor::kEnd:
      return "end";
  }
  return "start";
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // XML 1.0 has no way to write the other control characters.
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title) : width_(width), height_(height) {
  body_ = fmt::format("<title>{}</title>\n", Escape(title));
}

void Svg::Close(std::string_view element, std::string_view tip) {
  if (tip.empty()) {
    body_ += "/>\n";
  } else {
    body_ += fmt::format("><title>{}</title></{}>\n", Escape(tip), element);
  }
}

void Svg::Rect(double x, double y, double width, double height, std::string_view css,
               std::string_view tip, double radius) {
  body_ += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}")",
                       x, y, width, height, css);
  if (radius > 0) body_ += fmt::format(R"( rx="{:.1f}")", radius);
  Close("rect", tip);
}

void Svg::Line(Point from, Point to, std::string_view css) {
  body_ += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>)",
                       from.x, from.y, to.x, to.y, css) +
           "\n";
}

void Svg::Polyline(const std::vector<Point>& points, std::string_view css) {
  body_ += fmt::format(R"(<polyline points="{}" class="{}"/>)", Coordinates(points), css) + "\n";
}

void Svg::Polygon(const std::vector<Point>& points, std::string_view css) {
  body_ += fmt::format(R"(<polygon points="{}" class="{}"/>)", Coordinates(points), css) + "\n";
}

void Svg::Circle(Point center, double radius, std::string_view css, std::string_view tip) {
  body_ += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" class="{}")", center.x,
                       center.y, radius, css);
  Close("circle", tip);
}

void Svg::Text(Point at, std::string_view text, std::string_view css, Anchor anchor) {
  body_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)", at.x,
                       at.y, css, AnchorName(anchor), Escape(text)) +
           "\n";
}

std::string Svg::Finish() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n{}"
      "</svg>\n",
      width_, height_, body_);
}

std::string Svg::FinishFile(std::string_view style) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<style>{2}</style>\n{3}</svg>\n",
      width_, height_, style, body_);
}

}  // namespace kvilt::cli::report
