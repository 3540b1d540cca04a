// kvilt problems: the grammar of problem texts, and what a text means.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "src/core/problem.h"

namespace kvilt::cli {

void AddProblemsCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "problems", "The grammar of problem texts; prints texts in canonical form");
  command->footer(core::GrammarHelp());
  auto arguments = std::make_shared<std::vector<std::string>>();
  AddProblemArguments(*command, *arguments, false);
  command->callback([arguments, &exit_code] {
    const auto problems = core::ProblemsFromArguments(*arguments);
    if (!problems.ok()) {
      exit_code = Fail(problems.status());
      return;
    }
    if (problems->empty()) fmt::print("{}", core::GrammarHelp());
    for (const core::Problem& problem : *problems) fmt::print("{}\n", core::ToText(problem));
  });
}

}  // namespace kvilt::cli
