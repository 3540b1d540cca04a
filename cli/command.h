// One file per subcommand; each registers itself on the CLI11 app. A command that fails prints what
// was expected to stderr and sets a non-zero exit code.
#pragma once

namespace CLI {
class App;
}

namespace kvilt::cli {

void AddDemoCommand(CLI::App& app, int& exit_code);
void AddRunCommand(CLI::App& app, int& exit_code);
void AddCheckCommand(CLI::App& app, int& exit_code);
void AddPlanCommand(CLI::App& app, int& exit_code);
void AddBenchCommand(CLI::App& app, int& exit_code);
void AddInspectCommand(CLI::App& app, int& exit_code);
void AddProblemsCommand(CLI::App& app, int& exit_code);
void AddInfoCommand(CLI::App& app, int& exit_code);

}  // namespace kvilt::cli
