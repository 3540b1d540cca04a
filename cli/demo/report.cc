#include "cli/demo/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/page.h"
#include "cli/report/plots.h"
#include "cli/terminal.h"

namespace kvilt::cli::demo {
namespace {

using report::Page;

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string Threads(std::int64_t count) {
  return fmt::format("{} thread{}", count, count == 1 ? "" : "s");
}

// One line: runs of white space become one space.
std::string Excerpt(const std::string& text) {
  std::string line;
  for (char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return "\u2026" + line + "\u2026";
}

std::string Css(std::size_t i) { return fmt::format("c{}", i % 5); }

const FormatResult& Smallest(const DemoResults& results) {
  return *std::min_element(results.formats.begin(), results.formats.end(),
                           [](const FormatResult& a, const FormatResult& b) {
                             return a.bytes_per_token() < b.bytes_per_token();
                           });
}

double Shrink(const DemoResults& results, const FormatResult& format) {
  return results.formats.front().bytes_per_token() / format.bytes_per_token();
}

std::string LayerList(const std::vector<int>& layers) {
  return fmt::format("{}", fmt::join(layers, " and "));
}

void Opening(Page& page, const DemoResults& r) {
  const FormatResult& small = Smallest(r);
  const CaptureFacts& capture = r.capture;
  page.Opening(
      fmt::format("kvilt demo, {}", r.date),
      fmt::format("{} keeps this context in {:.0f} % of the bytes", small.name,
                  100 / Shrink(r, small)),
      fmt::format(
          "Layers {} of {} reading {}: {} keys, {} queries, {} query heads over {} KV heads "
          "of {}. The same attention, from caches in several formats, each judged against "
          "float64.",
          LayerList(capture.layers), capture.model, capture.text, capture.context, capture.queries,
          capture.q_heads, capture.kv_heads, capture.head_dim));
  const double worst_kernel =
      std::max_element(r.formats.begin(), r.formats.end(), [](const auto& a, const auto& b) {
        return a.kernel_error < b.kernel_error;
      })->kernel_error;
  std::vector<report::Card> cards = {
      {fmt::format("{:.2f}x", Shrink(r, small)),
       fmt::format("smaller than {}: {:.0f} instead of {:.0f} bytes per token and layer",
                   r.formats.front().name, small.bytes_per_token(),
                   r.formats.front().bytes_per_token())},
      {HumanError(worst_kernel),
       fmt::format("largest error of the kernel itself; what {} loses is {}", small.name,
                   HumanNumber(small.quantization_error))},
      {Percent(small.needle_mass),
       fmt::format("of a query's attention still on its needle with {}; {} on the original",
                   small.name, Percent(capture.needle_mass))}};
  if (!r.decode.contexts.empty()) {
    const ContextResult& last = r.decode.contexts.back();
    cards.push_back(
        {HumanTime(last.auto_us), fmt::format("one decode step over {} tokens, {}",
                                              HumanTokens(last.tokens), Threads(r.threads))});
  }
  page.Cards(cards);
}

void FormatTable(Page& page, const DemoResults& r) {
  std::vector<std::vector<std::string>> rows;
  for (const FormatResult& f : r.formats) {
    rows.push_back({f.name, fmt::format("{:.0f}", f.bytes_per_token()),
                    fmt::format("{:.2f}x", Shrink(r, f)), HumanError(f.kernel_error),
                    HumanNumber(f.quantization_error), Percent(f.needle_mass), HumanTime(f.us)});
  }
  page.Table(
      {"cache", "bytes / token", "smaller", "kernel error", "total error", "needle mass", "time"},
      rows);
  page.Paragraph(fmt::format(
      "Bytes: K and V of one token and layer, scales included. Errors: ||out - ref|| / ||sum p "
      "|v|||, "
      "over rows, heads and layers together. Needle mass: what the needle's query puts on its key, "
      "mean of the layers; float64 on the original gives {}, and lost precision can move it either "
      "way. Time: one layer, {} queries.",
      Percent(r.capture.needle_mass), r.capture.queries));
}

void Accuracy(Page& page, const DemoResults& r) {
  page.Section("The kernel adds almost nothing; the format sets the error");
  page.Paragraph(
      "Two comparisons for every cache. Against float64 on the very bytes the kernel "
      "read: what the kernel itself gets wrong. Against float64 on the original capture: "
      "that, plus what the format lost.");
  std::vector<report::DumbbellRow> rows;
  for (std::size_t i = 0; i < r.formats.size(); ++i) {
    const FormatResult& f = r.formats[i];
    // The unquantized cache has lost nothing, so both comparisons are one.
    const bool lossless = f.quantization_error <= f.kernel_error * 1.001;
    rows.push_back({f.name, f.note, Css(i), f.kernel_error, lossless ? 0 : f.quantization_error});
  }
  page.Figure(
      report::DumbbellPlot("Kernel error and total error per format", rows,
                           {"kernel alone", "kernel and format", "relative L2 error (log)"}),
      fmt::format("{} of {} query rows, every head and layer of the capture; RoPE inside the "
                  "kernel, causal mask, f32 output. Path: {}.",
                  r.capture.judged_queries, r.capture.queries, r.path));
  FormatTable(page, r);
}

void Bytes(Page& page, const DemoResults& r) {
  page.Section("What a token costs");
  std::vector<report::BarRow> bars;
  std::vector<report::ScatterPoint> points;
  for (std::size_t i = 0; i < r.formats.size(); ++i) {
    const FormatResult& f = r.formats[i];
    std::vector<report::BarPart> parts = {
        {f.data_bytes_per_token, Css(i),
         fmt::format("{:.0f} B of values", f.data_bytes_per_token)}};
    if (f.scale_bytes_per_token > 0) {
      parts.push_back({f.scale_bytes_per_token, Css(i) + " soft",
                       fmt::format("{:.0f} B of scales", f.scale_bytes_per_token)});
    }
    std::string text = fmt::format("{:.0f} B", f.bytes_per_token());
    if (i > 0) text += fmt::format(", {:.2f}x smaller", Shrink(r, f));
    bars.push_back({f.name, parts, text});
    points.push_back({f.bytes_per_token(), f.quantization_error, f.name, Css(i)});
  }
  page.Figure(report::BarPlot("Bytes per token", bars, "bytes per token and layer, K and V"),
              "Paler ends are the block scales: one byte for every 16 values.");
  page.Figure(
      report::ScatterPlot("Error against bytes", points,
                          {"bytes per token and layer", "relative L2 error"}),
      "Down is more exact, left is smaller. Segments keep the first 64 tokens in bf16 and "
      "the rest in NVFP4, in one call. bf16 holds the original itself: its error is the kernel's.");
}

void Needle(Page& page, const DemoResults& r) {
  const AttentionProfile& p = r.profile;
  const auto needle_bin = static_cast<std::size_t>(static_cast<double>(p.needle_position) /
                                                   std::max(p.bin_tokens, 1.0));
  const auto heaviest =
      static_cast<std::size_t>(std::max_element(p.nvfp4.begin(), p.nvfp4.end()) - p.nvfp4.begin());
  page.Section(needle_bin == heaviest ? "The needle stays found" : "Four bits lose this needle");
  page.Paragraph(fmt::format(
      "In layer {}, query head {} at position {} looks back at one distant key, position {}.",
      p.layer, p.head, p.query_position, p.needle_position));
  page.Facts({{"query", Excerpt(p.query_text)}, {"needle", Excerpt(p.key_text)}});
  page.Figure(
      report::MirrorPlot("Attention over the context", {"bf16 keys", "c0", p.original},
                         {"NVFP4 keys", "c2", p.nvfp4}, p.bin_tokens,
                         {static_cast<double>(p.needle_position) + 0.5, "needle"}),
      fmt::format(
          "Where the mass of this one query goes, {:g} tokens a bin, read off the kernel: V "
          "is a bf16 cache of one-hot rows beside the real K, since K and V may differ.",
          p.bin_tokens));
}

void Decode(Page& page, const DemoResults& r) {
  if (r.decode.contexts.empty()) return;
  const ContextResult& last = r.decode.contexts.back();
  page.Section("Decode time as the context grows");
  page.Paragraph(fmt::format(
      "One query token over the capture tiled to {}, {} cache, {}. With split off the keys of "
      "a row stay together, so only KV heads can be shared out; auto cuts the keys too. The gain "
      "comes "
      "from threads that would idle, so it grows with their number.",
      HumanTokens(last.tokens), r.decode.format, Threads(r.threads)));
  report::Curve off{"split off", "c1", true, {}}, automatic{"split auto", "c2", false, {}};
  std::vector<std::vector<std::string>> rows;
  for (const ContextResult& c : r.decode.contexts) {
    off.points.push_back({static_cast<double>(c.tokens), c.off_us});
    automatic.points.push_back({static_cast<double>(c.tokens), c.auto_us});
    rows.push_back({HumanTokens(c.tokens), HumanTime(c.off_us), HumanTime(c.auto_us),
                    fmt::format("{:.2f}x", c.off_us / c.auto_us), fmt::format("{}", c.items_off),
                    fmt::format("{}", c.items), fmt::format("{}", c.max_splits),
                    fmt::format("{:.2f}", c.auto_us * 1e3 / static_cast<double>(c.tokens) /
                                              r.capture.kv_heads),
                    HumanError(c.error), HumanError(c.difference)});
  }
  page.Figure(report::TimePlot("Decode time over context", {off, automatic}),
              "Median of repeated calls, merge included; both axes logarithmic.");
  page.Table({"context", "split off", "split auto", "gain", "items off", "items auto", "splits",
              "ns / token", "error", "difference"},
             rows);
  page.Paragraph(
      "Splits: parts of a row's keys with auto. ns / token: per KV token and KV head, auto. Error: "
      "auto against float64 on the same bytes. Difference: between both results, from the order of "
      "f32 additions.");
}

void Plans(Page& page, const DemoResults& r) {
  if (r.plans.empty()) return;
  page.Section("One long request does not hold up the batch");
  page.Paragraph(
      "The planner cuts by cost, not by request. A rectangle is one work item, to scale; "
      "neighbouring splits alternate in strength. Planning needs no device, so the second "
      "picture is of a machine that is not here.");
  for (const PlanResult& plan : r.plans) {
    page.Figure(
        report::WorkPicture("Work items of a mixed batch", plan.rows, plan.lanes, plan.kv_heads),
        fmt::format("{} on {}: {} items, at most {} splits of a row, balance {:.2f} "
                    "(1 is perfect).",
                    plan.problem, Threads(plan.threads), plan.split.items, plan.split.max_splits,
                    plan.split.balance));
  }
}

void Fork(Page& page, const DemoResults& r) {
  const ForkResult& f = r.fork;
  const auto saved = static_cast<double>(f.pages_unshared - f.pages_used);
  page.Section(fmt::format("{} continuations, one prefix", f.continuations));
  page.Paragraph(fmt::format(
      "Each fork of the {}-token prefix shares its pages. Only the page that is half full is "
      "copied, "
      "and only when a continuation writes to it: {} pages instead of {}, {} saved per layer. "
      "Afterwards the attention of the prefix {}, and that of the forks {}.",
      f.prefix_tokens, f.pages_used, f.pages_unshared, HumanBytes(saved * f.bytes_per_page),
      f.prefix_unchanged ? "is the same to the bit" : "HAS CHANGED",
      f.forks_match ? "equals that of separate copies to the bit"
                    : "DIFFERS from that of separate copies"));
  page.Figure(report::PagePicture("Pages of the forked sequences", f.rows),
              fmt::format("Page ids, {} tokens a page; a cell is filled as far as the page is. {} "
                          "pages were copied on write.",
                          f.page_size, f.pages_copied));
}

void Provenance(Page& page, const DemoResults& r) {
  page.Section("How this was made");
  page.Facts(
      {{"command", r.command},
       {"date", r.date},
       {"version", "kvilt " + r.version},
       {"machine", fmt::format("{}, {} hardware threads, {}", r.machine.cpu, r.machine.threads,
                               HumanBytes(static_cast<double>(r.machine.memory_bytes)))},
       {"system", r.machine.system},
       {"device", fmt::format("{} ({}), {}", r.device, r.path, Threads(r.threads))},
       {"capture", fmt::format("{}; {}", r.capture.model, r.capture.text)},
       {"took", fmt::format("{:.1f} s", r.seconds)}});
}

}  // namespace

std::string RenderReport(const DemoResults& results) {
  Page page("Kvilt demo");
  Opening(page, results);
  Accuracy(page, results);
  Bytes(page, results);
  Needle(page, results);
  Decode(page, results);
  Plans(page, results);
  Fork(page, results);
  Provenance(page, results);
  return page.Finish();
}

}  // namespace kvilt::cli::demo
