#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/run/session.h"
#include "cli/terminal.h"

namespace kvilt::cli::run {
namespace {

using Json = nlohmann::ordered_json;

std::string ShapeText(const TensorView& view) {
  return fmt::format("{} [{}]", Name(view.dtype),
                     fmt::join(view.shape, view.shape + view.rank, ", "));
}

std::string HealthText(const char* name, const HealthCounters& health) {
  return fmt::format("  {}: {} NaN, {} infinite, {} saturated, {} blocks flushed to zero\n", name,
                     health.nan, health.infinite, health.saturated, health.flushed_blocks);
}

Json HealthJson(const HealthCounters& health) {
  return {{"nan", health.nan},
          {"infinite", health.infinite},
          {"saturated", health.saturated},
          {"flushed_blocks", health.flushed_blocks}};
}

}  // namespace

std::string ToText(const RunArgs& args, const RunResult& result) {
  std::string text = Describe(result.plan);
  if (result.stored) {
    text += "\n" + Bold("Stored K and V") + "\n";
    text += HealthText("k", result.k_health) + HealthText("v", result.v_health);
  }
  const StageTimes& times = result.times;
  const std::string repeats =
      args.repeat > 1 ? fmt::format("run, median of {}", args.repeat) : "run";
  Table table({"stage", "time"});
  table.Add({"load", HumanTime(times.load_us)});
  if (result.stored) table.Add({"append", HumanTime(times.append_us)});
  table.Add({"plan", HumanTime(times.plan_us)});
  table.Add({"prepare", HumanTime(times.prepare_us)});
  table.Add({repeats, HumanTime(times.run_us)});
  table.Add({"write", HumanTime(times.write_us)});
  text += "\n" + Bold("Where the time went") + "\n" + table.Render();
  if (const auto& check = result.check) {
    const std::string problem = check->Problem();
    text += fmt::format(
        "\nAgainst float64 on {} rows of {} heads: error {} (allowed {}), lse {} of what is "
        "allowed: {}\n",
        check->rows, check->q_heads, HumanNumber(check->rel_l2), HumanNumber(check->rel_l2_limit),
        HumanNumber(check->lse_excess), problem.empty() ? "good" : "NOT GOOD: " + problem);
  }
  text += fmt::format("\nWrote {}: out {}", args.out, ShapeText(result.out));
  if (result.lse.defined()) text += fmt::format(", lse {}", ShapeText(result.lse));
  if (!args.store.save_cache.empty())
    text += fmt::format("\nWrote {}: the stored cache", args.store.save_cache);
  return text + "\n";
}

std::string ToJson(const RunArgs& args, const RunResult& result) {
  const StageTimes& times = result.times;
  Json json = {{"out", args.out},
               {"times_us",
                {{"load", times.load_us},
                 {"append", times.append_us},
                 {"plan", times.plan_us},
                 {"prepare", times.prepare_us},
                 {"run", times.run_us},
                 {"write", times.write_us}}},
               {"repeat", args.repeat},
               {"plan", Json::parse(DescribeJson(result.plan))}};
  if (result.stored)
    json["health"] = {{"k", HealthJson(result.k_health)}, {"v", HealthJson(result.v_health)}};
  if (const auto& check = result.check) {
    json["check"] = {{"rel_l2", check->rel_l2},
                     {"rel_l2_limit", check->rel_l2_limit},
                     {"lse_excess", check->lse_excess},
                     {"rows", check->rows},
                     {"q_heads", check->q_heads},
                     {"out_not_finite", check->out_not_finite},
                     {"lse_not_finite", check->lse_not_finite},
                     {"passed", check->passed()}};
  }
  return json.dump(2);
}

}  // namespace kvilt::cli::run
