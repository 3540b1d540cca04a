#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/inspect/inspection.h"
#include "cli/inspect/side_view.h"
#include "cli/terminal.h"
#include "src/core/printable.h"

namespace kvilt::cli {
namespace {

constexpr std::size_t kHeadsShown = 16;
constexpr int kBarCells = 24;

std::string List(const std::int64_t* values, int count) {
  return fmt::format("[{}]", fmt::join(values, values + count, ", "));
}

std::string GlobalText(const CacheSide& side) {
  if (side.global.array == nullptr) return fmt::format("{}", side.global.value);
  const auto [low, high] =
      std::minmax_element(side.global.array, side.global.array + side.global.array_size);
  return side.global.array_size == 1 ? fmt::format("{}", *low)
                                     : fmt::format("{}..{} by head", *low, *high);
}

std::string CacheText(const CacheInspection& cache) {
  const CacheRows& rows = cache.rows;
  std::string text =
      cache.paged
          ? fmt::format("Paged cache, page size {}, {} pages ({} used, {} named more than once)",
                        rows.page_size, rows.pages, rows.pages_used, rows.pages_shared)
          : fmt::format("Ragged cache of {} tokens", rows.page_size);
  text += fmt::format("; {} {}, {} tokens", rows.lengths.size(),
                      rows.lengths.size() == 1 ? "request" : "requests", rows.tokens);
  if (!rows.lengths.empty()) {
    const auto [low, high] = std::minmax_element(rows.lengths.begin(), rows.lengths.end());
    if (*low != *high) text += fmt::format(" ({}..{} each)", *low, *high);
  }
  if (!cache.owners.empty())
    text += fmt::format("; shared by requests {}", fmt::join(cache.owners, ", "));
  return text +
         fmt::format("\n{} per token, K and V of all heads\n", HumanBytes(cache.bytes_per_token));
}

std::string SidesText(const CacheInspection& cache) {
  Table layout({"side", "dtype", "layout", "shape", "strides", "head dim", "global"},
               {0, 1, 2, 3, 4});
  Table counts({"side", "elements", "zero", "NaN", "infinite", "at clip"});
  for (const SideInspection& side : cache.sides) {
    const TensorView& data = side.side.data;
    layout.Add({side.name, std::string(Name(data.dtype)),
                side.side.layout == KvLayout::kNHD ? "NHD" : "HND", List(data.shape, data.rank),
                List(data.stride, data.rank), fmt::format("{}", SideView(side.side).head_dim()),
                GlobalText(side.side)});
    const bool fp8 = data.dtype == DType::kE4M3 || data.dtype == DType::kE5M2;
    counts.Add({side.name, fmt::format("{}", side.stats.elements),
                fmt::format("{}", side.stats.zero), fmt::format("{}", side.stats.nan),
                fmt::format("{}", side.stats.infinite),
                fp8 ? fmt::format("{}", side.stats.at_max) : "-"});
  }
  return layout.Render() + "\n" + Bold("Addressed elements") + "\n" + counts.Render();
}

std::string HeadsText(const CacheInspection& cache) {
  std::vector<std::string> header = {"head"};
  std::size_t heads = 0;
  for (const SideInspection& side : cache.sides) {
    header.push_back(side.name + " max|x|");
    header.push_back(side.name + " rms");
    heads = std::max(heads, side.stats.heads.size());
  }
  Table table(header);
  for (std::size_t head = 0; head < std::min(heads, kHeadsShown); ++head) {
    std::vector<std::string> row = {fmt::format("{}", head)};
    for (const SideInspection& side : cache.sides) {
      row.push_back(HumanNumber(side.stats.heads[head].max_abs));
      row.push_back(HumanNumber(side.stats.heads[head].rms));
    }
    table.Add(row);
  }
  std::string text = Bold("Magnitude by KV head, decoded") + "\n" + table.Render();
  if (heads > kHeadsShown)
    text += fmt::format("  and {} more: --json has all\n", heads - kHeadsShown);
  return text;
}

// One line per binade that occurs: scales by power of two.
std::string HistogramText(const ScaleStats& stats) {
  std::array<std::int64_t, 16> binades = {};
  for (std::size_t byte = 0; byte < 0x7F; ++byte) {
    if (byte == 0) continue;
    binades[byte >> 3] += stats.histogram[byte];
  }
  const std::int64_t most =
      std::max<std::int64_t>(1, *std::max_element(binades.begin(), binades.end()));
  std::string text;
  for (std::size_t i = 0; i < binades.size(); ++i) {
    if (binades[i] == 0) continue;
    const auto cells = static_cast<int>((binades[i] * kBarCells + most - 1) / most);
    text += fmt::format("    {:>7} {:<{}} {}\n",
                        i == 0 ? "< 2^-6" : fmt::format("2^{}", static_cast<int>(i) - 7),
                        std::string(static_cast<std::size_t>(cells), '#'), kBarCells, binades[i]);
  }
  return text;
}

std::string ScalesText(const SideInspection& side) {
  const ScaleStats& scales = side.stats.scales;
  const ScaleOrder& order = side.scale_order;
  std::string text =
      Bold(fmt::format("Scales of {}", side.name)) +
      fmt::format(
          "\n  {} blocks of 16: {}..{}; at 448 (saturated or just fitting) {}, zero {}, of "
          "these flushed {}, NaN {}, negative {}\n",
          scales.blocks, HumanNumber(scales.min), HumanNumber(scales.max), scales.at_max,
          scales.zero, scales.flushed, scales.nan, scales.negative);
  text += HistogramText(scales);
  const bool linear = side.side.scale_layout == ScaleLayout::kLinear;
  text += fmt::format("  Order: declared {}{}; the scales say ", linear ? "linear" : "interleaved4",
                      linear ? "" : fmt::format(" of {} blocks a row", side.side.scale_row_blocks));
  if (order.verdict == ScaleOrderVerdict::kNotApplicable) {
    return text +
           "nothing: interleaved4 is impossible here (paged, page size and head_dim / 16 multiples "
           "of 4)\n";
  }
  text += Bold(std::string(Name(order.verdict)));
  text += order.verdict == ScaleOrderVerdict::kUndecidable
              ? "\n"
              : fmt::format(", by {}\n", order.decided_by);
  Table table({"evidence", "as linear", "as interleaved4", "sigmas"});
  const auto add = [&](const char* name, const ScaleEvidence& evidence) {
    table.Add({name, fmt::format("{:.3f}", evidence.linear),
               fmt::format("{:.3f}", evidence.interleaved4),
               fmt::format("{:.1f}", evidence.sigmas)});
  };
  add("channels: blocks keep their size", order.channels);
  add("tokens: a token's scales move together", order.tokens);
  return text + table.Render(4) +
         fmt::format(
             "    {} groups of 4 tokens; evidence counts from {:.0f} sigmas and a gap of {:.2f}, "
             "channels first\n",
             order.groups, kVerdictSigmas, kVerdictGap);
}

bool IsCacheTensor(std::string_view name) {
  return name.starts_with("k.") || name.starts_with("v.") || name.starts_with("page_table.") ||
         name == "indptr";
}

std::string OthersText(const Inspection& inspection) {
  Table table({"tensor", "dtype", "shape"}, {0, 1, 2});
  bool any = false;
  for (const auto& [name, view] : inspection.tensors) {
    if (inspection.cache && IsCacheTensor(name)) continue;
    table.Add({core::Printable(name), std::string(core::SafetensorsName(view.dtype)),
               List(view.shape, view.rank)});
    any = true;
  }
  std::string text;
  if (any)
    text += "\n" + Bold(inspection.cache ? "Also in the file" : "Tensors") + "\n" + table.Render();
  std::string keys;
  for (const auto& [key, value] : inspection.metadata) {
    if (key.starts_with("kvilt.k.") || key.starts_with("kvilt.v.")) continue;
    std::string line = value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    keys += fmt::format("  {} = {}\n", core::Printable(key), core::Printable(line, 90));
  }
  if (!keys.empty()) text += "\n" + Bold("Metadata") + "\n" + keys;
  return text;
}

}  // namespace

std::string ToText(const Inspection& inspection) {
  std::string text = Bold(core::Printable(inspection.path, inspection.path.size())) + "\n";
  if (inspection.cache) {
    const CacheInspection& cache = *inspection.cache;
    text += CacheText(cache);
    if (!cache.sides.empty()) text += "\n" + SidesText(cache) + "\n" + HeadsText(cache);
    for (const SideInspection& side : cache.sides) {
      if (side.stats.scales.blocks > 0) text += "\n" + ScalesText(side);
    }
  } else {
    text += "Not a cache in the schema of docs/formats.md: its tensors\n";
  }
  text += OthersText(inspection);
  if (!inspection.cache) return text;
  text += "\n" + Bold(inspection.problems.empty() ? "No problems found." : "Problems") + "\n";
  for (const std::string& problem : inspection.problems) {
    text += "  " + core::Printable(problem, problem.size()) + "\n";
  }
  return text;
}

}  // namespace kvilt::cli
