// The kvilt command: parses, dispatches to the file of the subcommand, and says what was expected
// when a command line is wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kvilt/version.h"

namespace kvilt::cli {
namespace {

constexpr const char* kDescription =
    "Kvilt: attention over paged and ragged KV caches in NVFP4, fp8 and 16 bit.";

constexpr const char* kFooter = R"(Start here:
  kvilt demo                                   the real capture in data/, with a report to look at
  kvilt info                                   what this machine can run

Debug a cache or a kernel:
  kvilt inspect cache.safetensors              what a dumped cache holds, and whether it is healthy
  kvilt run --cache cache.safetensors --q q.safetensors   one attention call on your own tensors
  kvilt check 'decode b=8 kv=4096 heads=32/8 d=128 kv_dtype=nvfp4'   the backend against float64
  kvilt check --sweep                          the same over a grid of mixed problems

Size a deployment:
  kvilt plan --explain 'decode b=64 kv=8192 heads=32/8 d=128 kv_dtype=nvfp4'   what would run, why
  kvilt bench 'decode b=1 kv=131072 heads=32/8 d=128 kv_dtype=nvfp4'   time against a read ceiling
  kvilt problems --help                        the grammar of these problem texts

`kvilt COMMAND --help` explains each with examples. Exit code: 0 good; 1 failed (a result out of
bounds, a problem that check or bench could not run, something wrong in an inspected cache, a file
that cannot be read or written); 2 wrong input (the command line, a problem text or what it asks
for, a file that breaks its format). KVILT_LOG=info prints a line when a device opens and a plan is
prepared; NO_COLOR and TERM=dumb are honoured.)";

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Suggest(const std::string& word, const std::vector<std::string>& names) {
  const std::string nearest = Nearest(word, names);
  return nearest.empty() ? std::string() : fmt::format("did you mean '{}'? ", nearest);
}

// The innermost command that was reached, and the first word that nothing took.
const CLI::App& Reached(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.back();
}

std::string FirstExtra(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  return extras.empty() ? std::string() : extras.front();
}

int UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Reached(app);
  const bool top = &command == &app;
  const std::string extra = FirstExtra(app);
  std::string text;
  if (!extra.empty() && top && extra.front() != '-') {
    const auto names = CommandNames(app);
    text = fmt::format("no command '{}'; {}expected one of: {}", extra, Suggest(extra, names),
                       fmt::join(names, ", "));
  } else if (!extra.empty()) {
    const auto names = OptionNames(command);
    const std::string where = top ? "kvilt" : "kvilt " + command.get_name();
    const bool option = extra.front() == '-';
    text = fmt::format("`{}` has no {} '{}'; {}expected: {}", where,
                       option ? "option" : "use for the argument", extra,
                       option ? Suggest(extra, names) : "", fmt::join(names, ", "));
  } else if (top && app.get_subcommands().empty()) {
    text = fmt::format("expected a command: {}", fmt::join(CommandNames(app), ", "));
  } else {
    text = error.what();
  }
  Fail(text, kExitUsage);
  fmt::print(stderr, "       `kvilt {}{}--help` explains.\n", top ? "" : command.get_name(),
             top ? "" : " ");
  return kExitUsage;
}

// A closed standard stream gives its number to the next file that opens, which would then hold
// what is printed: those numbers are taken first, by what can be neither read nor written usefully.
void HoldStandardStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", O_RDONLY) != descriptor) return;
  }
}

// The results are out, or the command failed: a full disk or a closed pipe shows only here.
int FlushResults(int exit_code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return exit_code;
  const std::string reason = errno == 0 ? "" : fmt::format(": {}", std::strerror(errno));
  fmt::print(stderr, "kvilt: stdout: results could not be written{}\n", reason);
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "kvilt");
  int exit_code = kExitOk;
  app.set_version_flag("--version", std::string("kvilt ") + KVILT_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  AddDemoCommand(app, exit_code);
  AddRunCommand(app, exit_code);
  AddCheckCommand(app, exit_code);
  AddPlanCommand(app, exit_code);
  AddBenchCommand(app, exit_code);
  AddInspectCommand(app, exit_code);
  AddProblemsCommand(app, exit_code);
  AddInfoCommand(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return UsageError(app, error);
  }
  return exit_code;
}

}  // namespace
}  // namespace kvilt::cli

int main(int argc, char** argv) {
  kvilt::cli::HoldStandardStreams();
  int exit_code = kvilt::cli::kExitFailed;
  try {
    exit_code = kvilt::cli::Main(argc, argv);
  } catch (const std::exception& error) {  // Out of memory, a full disk under a stream, ...
    exit_code = kvilt::cli::Fail(error.what());
  }
  return kvilt::cli::FlushResults(exit_code);
}
