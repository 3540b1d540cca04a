#include "cli/report/split_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/report/axis.h"
#include "cli/report/svg.h"
#include "cli/terminal.h"

namespace kvilt::cli::report {
namespace {

constexpr double kWidth = 1180;
constexpr double kLeft = 130;
constexpr double kRight = kWidth - 40;
constexpr double kLabelPitch = 13;  // Labels nearer than this would cover each other.

// A file of its own is read by viewers that know neither variables nor colour schemes.
constexpr const char* kStyle = R"css(
text { font: 12px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; fill: #1c2127; }
.title { font-size: 17px; font-weight: 650; }
.fact, .tick, .axis-title { fill: #5d6670; }
.section { font-size: 13px; font-weight: 600; }
.label { font-size: 11px; }
.paper { fill: #fbfaf7; } .band { fill: #f0efe9; }
.grid { stroke: #e0ded6; stroke-width: 1; } .axis { stroke: #5d6670; stroke-width: 1; }
.busiest { stroke: #9a3412; stroke-width: 1.5; }
.ideal { stroke: #1c2127; stroke-width: 1.25; stroke-dasharray: 5 3; }
.busiest-text { fill: #9a3412; }
.soft { opacity: 0.62; }
)css";

// Blocks side by side in the grid differ little in hue, so that the order of a line of ranges is
// seen, and alternate in lightness, so that its cuts are.
std::string BlockColor(std::size_t block, std::size_t blocks) {
  constexpr std::array<std::array<double, 3>, 6> kStops = {{{15, 118, 110},
                                                            {37, 99, 168},
                                                            {109, 40, 217},
                                                            {190, 24, 93},
                                                            {196, 98, 16},
                                                            {107, 127, 26}}};
  const double at = static_cast<double>(block) * (kStops.size() - 1) /
                    static_cast<double>(std::max<std::size_t>(blocks, 2) - 1);
  const auto stop = std::min(static_cast<std::size_t>(at), kStops.size() - 2);
  const double share = at - static_cast<double>(stop);
  const double light = block % 2 == 0 ? 0.12 : 0.38;
  std::array<int, 3> rgb{};
  for (std::size_t c = 0; c < 3; ++c) {
    const double value = kStops[stop][c] + share * (kStops[stop + 1][c] - kStops[stop][c]);
    rgb[c] = static_cast<int>(value + light * (255 - value));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

std::size_t RowCount(const SplitData& data) {
  std::size_t rows = 0;
  for (const SplitRequest& r : data.requests) rows += r.rows.size();
  return rows;
}

// Height of one row of a request: more where it is cut, so that the cuts show.
double RowPitch(const SplitData& data, const SplitRequest& request) {
  constexpr std::size_t kManyRows = 200;
  const std::size_t rows = RowCount(data);
  const double pitch =
      std::clamp(640 / static_cast<double>(std::max<std::size_t>(rows, 1)), 2.0, 16.0);
  const bool cut = std::any_of(request.rows.begin(), request.rows.end(),
                               [](const SplitRow& row) { return row.size() > 1; });
  return cut && rows <= kManyRows ? std::max(pitch, 9.0) : pitch;
}

// Between requests.
double Gap(const SplitData& data) { return data.requests.size() > 100 ? 1 : 4; }

// A problem of many requests has a long text.
std::string Shortened(const std::string& title) {
  constexpr std::size_t kMost = 90;
  return title.size() <= kMost ? title : title.substr(0, kMost) + " ...";
}

double RequestHeight(const SplitData& data, const SplitRequest& request) {
  return RowPitch(data, request) *
         static_cast<double>(std::max<std::size_t>(request.rows.size(), 1));
}

double LanePitch(const SplitLaunch& launch) {
  return std::clamp(620 / static_cast<double>(std::max<std::size_t>(launch.blocks.size(), 1)), 3.0,
                    22.0);
}

// What no plan should have draws nothing.
double Cost(const SplitItem& item) { return std::isfinite(item.cost) ? item.cost : 0; }

double Cost(const std::vector<SplitItem>& lane) {
  double cost = 0;
  for (const SplitItem& item : lane) cost += Cost(item);
  return cost;
}

// Where a key lies.
struct KeyScale {
  Scale scale;
  bool root = false;
  double operator()(std::int64_t key) const {
    const auto value = static_cast<double>(key);
    return scale(root ? std::sqrt(value) : value);
  }
};

class Picture {
 public:
  explicit Picture(const SplitData& data) : data_(data), svg_(kWidth, Height(data), data.title) {
    for (const SplitLaunch& launch : data.launches) {
      colors_ = std::max(colors_, launch.blocks.size());
    }
  }

  std::string Draw() {
    svg_.Rect(0, 0, kWidth, Height(data_), "paper");
    svg_.Text({24, 34}, Shortened(data_.title), "title");
    double y = 56;
    for (const std::string& fact : data_.facts) {
      svg_.Text({24, y}, fact, "fact");
      y += kFact;
    }
    y = DrawRequests(y);
    for (const SplitLaunch& launch : data_.launches) y = DrawLaunch(launch, y);
    std::string style = kStyle;
    for (std::size_t b = 0; b < colors_; ++b) {
      style += fmt::format(".b{} {{ fill: {}; }}\n", b, BlockColor(b, colors_));
    }
    return svg_.FinishFile(style);
  }

 private:
  static constexpr double kFact = 18;
  static constexpr double kSection = 52;  // Before the first row.
  static constexpr double kAxis = 44;     // Below the last.

  static double Height(const SplitData& data) {
    double height = 56 + kFact * static_cast<double>(data.facts.size()) + kSection + kAxis + 10;
    for (const SplitRequest& r : data.requests) height += RequestHeight(data, r) + Gap(data);
    for (const SplitLaunch& launch : data.launches) {
      height += kSection + kAxis + LanePitch(launch) * static_cast<double>(launch.blocks.size());
    }
    return height;
  }

  // Most requests would be slivers beside the longest: a square-root scale shows both.
  bool Skewed() const {
    const auto brief = std::count_if(data_.requests.begin(), data_.requests.end(),
                                     [this](const SplitRequest& request) {
                                       std::int64_t end = 0;
                                       for (const SplitRow& row : request.rows) {
                                         for (const SplitBar& bar : row)
                                           end = std::max(end, bar.key_end);
                                       }
                                       return end * 16 < data_.keys;
                                     });
    return 2 * static_cast<std::size_t>(brief) > data_.requests.size();
  }

  double DrawRequests(double y) {
    svg_.Text({kLeft, y + 32},
              fmt::format("Requests and their keys, in the colour of the {} that reads them",
                          data_.block_word),
              "section");
    double top = y + kSection;
    double bottom = top;
    for (const SplitRequest& r : data_.requests) bottom += RequestHeight(data_, r) + Gap(data_);
    const auto keys = static_cast<double>(std::max<std::int64_t>(data_.keys, 1));
    const bool skewed = Skewed();
    const KeyScale x{{0, skewed ? std::sqrt(keys) : keys, kLeft, kRight, false}, skewed};
    std::vector<double> ticks;
    for (int eighth = 0; eighth <= 8; ++eighth) ticks.push_back(x.scale.hi * eighth / 8);
    const auto tick_text = [skewed](double v) {
      return HumanTokens(std::llround(skewed ? v * v : v));
    };
    DrawXAxis(svg_, x.scale, top - 4, bottom, ticks, tick_text,
              skewed ? "key (square-root scale)" : "key");
    double labelled = -kLabelPitch;
    for (const SplitRequest& request : data_.requests) {
      const double height = RequestHeight(data_, request);
      if (top + height / 2 - labelled >= kLabelPitch) {
        labelled = top + height / 2;
        svg_.Text({kLeft - 10, labelled + 4}, request.label, "label", Anchor::kEnd);
      }
      DrawRequest(request, x, top);
      top += height + Gap(data_);
    }
    return bottom + kAxis;
  }

  void DrawRequest(const SplitRequest& request, const KeyScale& x, double top) {
    const double pitch = RowPitch(data_, request);
    const double gap = pitch >= 6 ? 1 : 0;
    for (const SplitRow& row : request.rows) {
      for (const SplitBar& bar : row) {
        const double left = x(bar.key_begin);
        const double width = x(bar.key_end) - left;
        svg_.Rect(left, top, std::max(0.8, width - (width > 3 ? 1 : 0)), pitch - gap,
                  fmt::format("b{}", bar.block), bar.tip);
      }
      top += pitch;
    }
  }

  double DrawLaunch(const SplitLaunch& launch, double y) {
    double total = 0;
    double busiest = 0;
    for (const auto& lane : launch.blocks) {
      total += Cost(lane);
      busiest = std::max(busiest, Cost(lane));
    }
    const double ideal =
        total / static_cast<double>(std::max<std::size_t>(launch.blocks.size(), 1));
    svg_.Text({kLeft, y + 20}, launch.label, "section");
    const double top = y + kSection;
    const double pitch = LanePitch(launch);
    const double bottom = top + pitch * static_cast<double>(launch.blocks.size());
    const Scale x{0, busiest > 0 ? busiest * 1.02 : 1, kLeft, kRight, false};
    DrawXAxis(
        svg_, x, top - 4, bottom, Ticks(x, 8), [](double v) { return fmt::format("{:g}", v); },
        data_.cost_word);
    DrawLanes(launch, x, top, pitch);
    svg_.Line({x(ideal), top - 6}, {x(ideal), bottom}, "ideal");
    svg_.Line({x(busiest), top - 6}, {x(busiest), bottom}, "busiest");
    svg_.Text({x(ideal) - 6, top - 10}, fmt::format("ideal {}", HumanNumber(ideal)), "fact",
              Anchor::kEnd);
    svg_.Text({kRight, top - 24}, fmt::format("busiest {}", HumanNumber(busiest)), "busiest-text",
              Anchor::kEnd);
    return bottom + kAxis;
  }

  void DrawLanes(const SplitLaunch& launch, const Scale& x, double top, double pitch) {
    const auto every = static_cast<std::size_t>(std::ceil(kLabelPitch / pitch));
    for (std::size_t b = 0; b < launch.blocks.size(); ++b) {
      const double y = top + pitch * static_cast<double>(b);
      if (b % every == 0) {
        svg_.Text({kLeft - 10, y + pitch / 2 + 4}, fmt::format("{} {}", data_.block_word, b),
                  "label", Anchor::kEnd);
      }
      double at = 0;
      for (std::size_t i = 0; i < launch.blocks[b].size(); ++i) {
        const SplitItem& item = launch.blocks[b][i];
        const double left = x(at);
        at += Cost(item);
        const double width = x(at) - left;
        svg_.Rect(left, y, std::max(0.8, width - (width > 3 ? 1 : 0)),
                  pitch - (pitch > 4 ? 1 : 0.5), fmt::format("b{}{}", b, i % 2 == 0 ? "" : " soft"),
                  item.tip);
      }
    }
  }

  const SplitData& data_;
  Svg svg_;
  std::size_t colors_ = 1;
};

}  // namespace

std::string SplitPicture(const SplitData& data) { return Picture(data).Draw(); }

}  // namespace kvilt::cli::report
