#include "cli/demo/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "cli/report/axis.h"
#include "cli/report/labels.h"
#include "cli/report/page.h"
#include "cli/report/pictures.h"
#include "cli/report/plots.h"
#include "cli/report/split_picture.h"
#include "cli/report/svg.h"
#include "cli/report/xml_check.h"

namespace kvilt::cli::report {
namespace {

constexpr const char* kNasty = "a<b & \"c\" > 'd' \x01 ]]>";

TEST(XmlCheck, FindsWhatItShould) {
  EXPECT_EQ(XmlProblem("<a><b x=\"1\"/>text &amp;</a>"), "");
  EXPECT_NE(XmlProblem("<a><b></a></b>"), "");
  EXPECT_NE(XmlProblem("<a>"), "");
  EXPECT_NE(XmlProblem("<a>&nbsp;</a>"), "");
  EXPECT_NE(XmlProblem("<a x=\"1/>"), "");
}

TEST(Svg, IsWellFormedWhateverTheTexts) {
  Svg svg(100, 50, kNasty);
  svg.Rect(0, 0, 10, 10, "mark", kNasty, 2);
  svg.Circle({5, 5}, 3, "mark", kNasty);
  svg.Text({1, 1}, kNasty, "label");
  svg.Polyline({{0, 0}, {1, 1}}, "curve");
  svg.Polyline({}, "curve");
  const std::string text = svg.Finish();
  EXPECT_EQ(XmlProblem(text), "");
  EXPECT_EQ(text.find('\x01'), std::string::npos);
  EXPECT_NE(text.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
}

TEST(Scale, MapsBothWaysAndClamps) {
  const Scale linear{0, 10, 100, 200, false};
  EXPECT_DOUBLE_EQ(linear(5), 150);
  EXPECT_DOUBLE_EQ(linear(-5), 100);
  EXPECT_DOUBLE_EQ(linear(1e9), 200);
  const Scale log{1e-4, 1, 300, 0, true};  // Downwards, as y axes are.
  EXPECT_NEAR(log(1e-2), 150, 1e-9);
  EXPECT_DOUBLE_EQ(log(0), 300);
  EXPECT_DOUBLE_EQ(log(std::nan("")), 300);
}

TEST(Ticks, AreRoundAndInside) {
  const auto linear = Ticks({0, 806.4, 0, 1, false}, 5);
  EXPECT_EQ(linear, (std::vector<double>{0, 200, 400, 600, 800}));
  EXPECT_FALSE(std::signbit(linear.front()));
  const auto wide = Ticks({1e-4, 1, 0, 1, true});
  ASSERT_EQ(wide.size(), 5u);  // Powers only.
  EXPECT_DOUBLE_EQ(wide[1], 1e-3);
  const auto narrow = Ticks({20, 500, 0, 1, true});
  EXPECT_EQ(narrow, (std::vector<double>{20, 50, 100, 200, 500}));
}

TEST(PowersAround, HoldsTheValuesAndIgnoresTheRest) {
  const LogRange range = PowersAround({3e-4, 0.02, 0, -1, std::nan("")});
  EXPECT_NEAR(range.lo, 1e-4, 1e-12);
  EXPECT_NEAR(range.hi, 0.1, 1e-12);
  const LogRange fine = PowersAround({30, 420}, true);
  EXPECT_NEAR(fine.lo, 20, 1e-9);
  EXPECT_NEAR(fine.hi, 500, 1e-9);
  const LogRange none = PowersAround({});
  EXPECT_LT(none.lo, none.hi);
}

TEST(Spread, KeepsOrderAndDistance) {
  const auto placed = Spread({{0, 100, 0}, {1, 98, 0}, {2, 101, 0}, {3, 10, 0}}, 120);
  ASSERT_EQ(placed.size(), 4u);
  EXPECT_EQ(placed[0].index, 3u);
  EXPECT_EQ(placed[1].index, 1u);
  for (std::size_t i = 1; i < placed.size(); ++i) {
    EXPECT_GE(placed[i].y - placed[i - 1].y, 16 - 1e-9);
    EXPECT_LE(placed[i].y, 120);
  }
}

TEST(Spread, BesideLeavesDistantMarksAlone) {
  const auto placed = SpreadBeside({{0, 50, 100}, {1, 51, 120}, {2, 50, 400}}, 200);
  ASSERT_EQ(placed.size(), 3u);
  EXPECT_EQ(placed[0].x, 120);
  EXPECT_EQ(placed[1].x, 120);
  EXPECT_GE(placed[1].y - placed[0].y, 16 - 1e-9);
  EXPECT_EQ(placed[2].y, 50);
}

TEST(AssignToLanes, GivesTheNextItemToTheFirstFreeLane) {
  const auto lanes = AssignToLanes({{0, 0, 5}, {0, 1, 4}, {1, 2, 3}, {1, 3, 2}}, 2);
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].size(), 2u);  // Items 0 and 3.
  EXPECT_EQ(lanes[0][1].item, 3);
  EXPECT_EQ(lanes[1][1].item, 2);
}

// Every plot, with the least and with values that no run should give but a broken one might.
TEST(Plots, AreWellFormedAndFiniteOnAnyNumbers) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::string drawings[] = {
      DumbbellPlot("t", {}, {"low", "high", "axis"}),
      DumbbellPlot("t", {{kNasty, kNasty, "c0", 0, 0}, {"b", "", "c1", 1e-3, 0.1}},
                   {"low", kNasty, "axis"}),
      DumbbellPlot("t", {{"a", "", "c0", nan, inf}}, {"low", "high", "axis"}),
      BarPlot("t", {}, "axis"),
      BarPlot("t", {{kNasty, {{1, "c0", kNasty}, {2, "c0 soft", ""}}, "3 B"}}, "axis"),
      ScatterPlot("t", {{1, 0.1, kNasty, "c0"}, {1, 0.1, "same", "c1"}, {2, nan, "n", "c2"}},
                  {"x", "y"}),
      TimePlot("t", {}),
      TimePlot("t", {{"a", "c0", true, {{2048, 10}, {8192, 40}}}, {"b", "c1", false, {}}}),
      MirrorPlot("t", {"up", "c0", {}}, {"down", "c1", {}}, 16, {0, "needle"}),
      MirrorPlot("t", {"up", "c0", {0.5, nan, 0.1}}, {"down", "c1", {0.5, 0.2}}, 16, {40, kNasty}),
      WorkPicture("t", {}, {}, 0),
      WorkPicture("t", {{kNasty, 128, {{0, 0, 2, 0, 64}, {1, 0, 2, 64, 128}}}},
                  AssignToLanes({{0, 0, 64}, {0, 1, 64}}, 2), 2),
      SplitPicture({}),
      SplitPicture({"t", {kNasty}, 8, {{kNasty, {{{0, 8, 0, kNasty}}, {}}}, {"empty", {}}}, {}}),
      SplitPicture({"t", {}, 0, {}, {{kNasty, {{{nan, kNasty}}, {}, {{inf, ""}}}}, {"none", {}}}}),
      PagePicture("t", {{kNasty, 3, {{7, PageKind::kShared, 1}, {8, PageKind::kCopied, 0.5}}}}),
  };
  for (const std::string& svg : drawings) {
    EXPECT_EQ(XmlProblem(svg), "") << svg;
    EXPECT_EQ(svg.find("=\"nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("=\"-nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("=\"inf"), std::string::npos) << svg;
  }
}

TEST(SplitPicture, MarksTheBusiestBlockAndTheIdeal) {
  SplitData data;
  data.keys = 100;
  data.requests = {{"request 0", {{{0, 60, 0, "first"}, {60, 100, 1, "second"}}}}};
  data.launches = {{"launch", {{{6, "first"}}, {{4, "second"}}}}};
  const std::string svg = SplitPicture(data);
  for (const char* part : {"busiest 6.00", "ideal 5.00", "request 0", "block 1", ".b1 {", "first",
                           "second", "width=\"1180\""}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
  }
  EXPECT_EQ(svg.find("square-root"), std::string::npos);
  // Most requests are short: a scale on which they show.
  for (int r = 1; r < 4; ++r) data.requests.push_back({"short", {{{0, 2, 1, ""}}}});
  EXPECT_NE(SplitPicture(data).find("square-root"), std::string::npos);
}

TEST(Page, IsSelfContainedAndWellFormed) {
  Page page(kNasty);
  page.Opening(kNasty, kNasty, kNasty);
  page.Cards({{kNasty, kNasty}});
  page.Section(kNasty);
  page.Paragraph(kNasty);
  page.Figure(Svg(10, 10, "x").Finish(), kNasty);
  page.Table({"a", kNasty}, {{"1", kNasty}});
  page.Facts({{kNasty, kNasty}});
  const std::string html = page.Finish();
  EXPECT_EQ(XmlProblem(html), "");
  for (const char* outside : {"<script", "src=", "href=", "url(", "@import"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace kvilt::cli::report
