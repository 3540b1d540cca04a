// A drawing as SVG text. Colours and type come from CSS classes (style.h), so that one drawing is
// readable in light and dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvilt::cli::report {

// `text` with the five characters that XML reserves replaced.
std::string Escape(std::string_view text);

enum class Anchor { kStart, kMiddle, kEnd };

struct Point {
  double x = 0;
  double y = 0;
};

// Coordinates in pixels at the natural size; y grows downwards. Output is well-formed XML whatever
// the texts hold.
class Svg {
 public:
  // `title` is read aloud by screen readers.
  Svg(double width, double height, std::string_view title);

  // `tip`, where given, shows when the pointer rests on the mark.
  void Rect(double x, double y, double width, double height, std::string_view css,
            std::string_view tip = {}, double radius = 0);
  void Line(Point from, Point to, std::string_view css);
  void Polyline(const std::vector<Point>& points, std::string_view css);
  void Polygon(const std::vector<Point>& points, std::string_view css);
  void Circle(Point center, double radius, std::string_view css, std::string_view tip = {});
  void Text(Point at, std::string_view text, std::string_view css, Anchor anchor = Anchor::kStart);

  double width() const { return width_; }
  std::string Finish() const;
  // As a file of its own, of the natural size, with these style rules.
  std::string FinishFile(std::string_view style) const;

 private:
  void Close(std::string_view element, std::string_view tip);

  double width_;
  double height_;
  std::string body_;
};

}  // namespace kvilt::cli::report
