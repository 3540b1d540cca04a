// kvilt inspect: what a cache in a file holds, and whether it can be right.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/inspect/inspection.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt inspect data/smollm2_135m_layer07.safetensors
  kvilt inspect --json dump.safetensors | jq '.cache.v.scales.order.verdict'

The file is a cache in the schema of docs/formats.md; of any other safetensors file the tensors are
listed. Only rows that the page table addresses are counted. For NVFP4 the scales themselves say in
which order they lie (linear or interleaved4), or 'undecidable' when the data cannot tell.

Exit code 1 when something cannot be right: a broken page table, NaN, infinities, negative scales,
scales whose order contradicts the declared one, a global that is no multiplier or looks like a
reciprocal, a wrong scale_row_blocks, owners that are no requests of the file. Exit code 2 when the file breaks its format.)";

struct InspectArgs {
  std::string path;
  bool json = false;
};

int RunInspect(const InspectArgs& args) {
  const Result<core::TensorFile> file = core::TensorFile::Load(args.path);
  if (!file.ok()) return Fail(file.status());
  const Result<Inspection> inspection = Inspect(*file);
  if (!inspection.ok()) {
    const Status& status = inspection.status();
    return Fail(Status(status.code(), args.path, status.message()));
  }
  fmt::print("{}{}", args.json ? ToJson(*inspection) : ToText(*inspection), args.json ? "\n" : "");
  return inspection->problems.empty() ? kExitOk : kExitFailed;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a cache in a file holds, and whether it is healthy");
  command->footer(kFooter);
  auto args = std::make_shared<InspectArgs>();
  command->add_option("file", args->path, "A safetensors file")->required()->type_name("FILE");
  AddJsonOption(*command, args->json);
  command->callback([args, &exit_code] { exit_code = RunInspect(*args); });
}

}  // namespace kvilt::cli
