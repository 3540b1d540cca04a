// kvilt run: one attention call on tensors from files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/run/session.h"
#include "cli/terminal.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt run --cache data/smollm2_135m_layer07.safetensors --out out.safetensors --check
      the real capture: queries, mask and RoPE lie in the same file
  kvilt run --cache data/smollm2_135m_layer07.safetensors --kv-dtype nvfp4 --out out.safetensors
      the same through an NVFP4 cache, written with AppendKv first
  kvilt run --q q.safetensors --k k.safetensors --v v.safetensors --mask causal --k-dtype e4m3 \
      --v-dtype nvfp4 --scale-layout interleaved4 --save-cache cache.safetensors --out out.safetensors
  kvilt run --q q.safetensors --cache prefix.safetensors --cache tail.safetensors --mask causal \
      --split 512 --out out.safetensors       two segments, a split every 512 keys

The tensors and metadata of the files are in docs/formats.md. Options on the command line replace what
the file of --q says. The file of --out holds the tensors out and lse.)";

int RunRun(const run::RunArgs& args) {
  const Result<Device> device = OpenDevice(args.device);
  if (!device.ok()) return Fail(device.status());
  run::Session session(args);
  const Result<run::RunResult> result = session.Execute(*device);
  if (!result.ok()) return Fail(result.status());
  fmt::print("{}{}", args.json ? ToJson(args, *result) : ToText(args, *result),
             args.json ? "\n" : "");
  return result->check && !result->check->passed() ? kExitFailed : kExitOk;
}

}  // namespace

void AddRunCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("run", "One attention call on your own tensors, from file to file");
  command->footer(kFooter);
  auto args = std::make_shared<run::RunArgs>();
  AddRunOptions(*command, *args);
  command->callback([args, &exit_code] { exit_code = RunRun(*args); });
}

}  // namespace kvilt::cli
