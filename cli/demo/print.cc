#include "cli/demo/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.h"

namespace kvilt::cli::demo {
namespace {

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string Heading(std::string_view text) { return fmt::format("\n{}\n\n", Bold(text)); }

std::string Formats(const DemoResults& r) {
  Table table(
      {"cache", "bytes/token", "smaller", "kernel error", "total error", "needle mass", "time"});
  const double most = r.formats.front().bytes_per_token();
  for (const FormatResult& f : r.formats) {
    table.Add({f.name, fmt::format("{:.0f}", f.bytes_per_token()),
               fmt::format("{:.2f}x", most / f.bytes_per_token()), HumanError(f.kernel_error),
               HumanNumber(f.quantization_error), Percent(f.needle_mass), HumanTime(f.us)});
  }
  const CaptureFacts& c = r.capture;
  return Heading(fmt::format("The same attention from caches in {} formats", r.formats.size())) +
         table.Render() +
         fmt::format(
             "\n"
             "  bytes/token   K and V of one token and layer, scales included\n"
             "  kernel error  against float64 on the same bytes: what the kernel gets wrong\n"
             "  total error   against float64 on the original: that and what the format lost\n"
             "  needle mass   a query's attention on one distant key; {} in float64 on the "
             "original\n"
             "  time          one layer, {} queries over {} tokens, RoPE and causal mask inside\n",
             Percent(c.needle_mass), c.queries, c.context);
}

std::string Decode(const DemoResults& r) {
  Table table({"context", "split off", "split auto", "gain", "items off", "items auto", "splits",
               "ns/token", "error", "difference"});
  for (const ContextResult& c : r.decode.contexts) {
    table.Add({HumanTokens(c.tokens), HumanTime(c.off_us), HumanTime(c.auto_us),
               fmt::format("{:.2f}x", c.off_us / c.auto_us), fmt::format("{}", c.items_off),
               fmt::format("{}", c.items), fmt::format("{}", c.max_splits),
               HumanNumber(c.auto_us * 1e3 / static_cast<double>(c.tokens) / r.capture.kv_heads),
               HumanError(c.error), HumanError(c.difference)});
  }
  return Heading(fmt::format("One decode step, {} cache, {} thread{}", r.decode.format, r.threads,
                             r.threads == 1 ? "" : "s")) +
         table.Render() +
         "\n"
         "  splits        parts that the keys of one row are cut into, with split auto\n"
         "  gain          from threads that idle without a split, so it grows with their number\n"
         "  ns/token      per KV token and KV head, split auto\n"
         "  error         split auto against float64 on the same bytes\n"
         "  difference    between both results: the order of f32 additions\n";
}

std::string Fork(const DemoResults& r) {
  const ForkResult& f = r.fork;
  const double saved = static_cast<double>(f.pages_unshared - f.pages_used) * f.bytes_per_page;
  return Heading(fmt::format("{} continuations of one prefix of {} tokens", f.continuations,
                             f.prefix_tokens)) +
         fmt::format(
             "  {} pages instead of {}: {} saved per layer; {} pages copied on write\n"
             "  the prefix's attention {}; the forks' {}\n",
             f.pages_used, f.pages_unshared, HumanBytes(saved), f.pages_copied,
             f.prefix_unchanged ? "is the same to the bit" : "HAS CHANGED",
             f.forks_match ? "equals that of separate copies to the bit"
                           : "DIFFERS from that of separate copies");
}

}  // namespace

std::string RenderText(const DemoResults& r) {
  const CaptureFacts& c = r.capture;
  return fmt::format(
             "{}: layers {} reading {}\n{} tokens, {} query heads over {} KV heads of {}; {} ({}), "
             "{} thread{}\n",
             c.model, fmt::join(c.layers, " and "), c.text, c.context, c.q_heads, c.kv_heads,
             c.head_dim, r.device, r.path, r.threads, r.threads == 1 ? "" : "s") +
         Formats(r) + Decode(r) + Fork(r);
}

}  // namespace kvilt::cli::demo
