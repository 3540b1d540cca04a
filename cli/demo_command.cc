// kvilt demo: the main job on a real capture, and a report to look at.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/demo/parts.h"
#include "cli/demo/print.h"
#include "cli/demo/report.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kvilt/version.h"
#include "src/core/file.h"

namespace kvilt::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  kvilt demo                             under a minute on two cores; writes kvilt-demo.html
  kvilt demo --out /tmp/report.html      the report elsewhere
  kvilt demo --no-report --threads 1     the terminal alone, one thread
  kvilt demo --device cpu:avx2           another SIMD target

Runs a real capture (two layers of SmolLM2-135M reading the GPL-3) through bf16, fp8 and NVFP4
caches: bytes per token, the kernel's own error and the format's against float64, the attention
kept on a distant needle, decode time with split off and auto, and forks that share a prefix.)";

struct DemoArgs {
  std::string data;
  std::string out = "kvilt-demo.html";
  bool no_report = false;
  bool quick = false;
  DeviceArgs device;
};

std::string CommandLine(const DemoArgs& args) {
  std::string text = "kvilt demo";
  if (args.quick) text += " --quick";
  if (args.device.device != "cpu") text += " --device " + args.device.device;
  if (args.device.threads > 0) text += fmt::format(" --threads {}", args.device.threads);
  if (!args.data.empty()) text += " --data " + args.data;
  return text + " --out " + args.out;
}

Status RunParts(const DemoArgs& args, const Device& device, demo::DemoResults& results) {
  const demo::Effort effort = args.quick ? demo::QuickEffort() : demo::Effort{};
  Progress progress("demo");
  const demo::Stage stage = [&](std::string_view what) { progress.Update(0, what); };
  auto captures = demo::LoadCaptures(demo::CaptureFolder(args.data));
  if (!captures.ok()) return captures.status();
  for (const demo::Capture& capture : *captures) {
    if (args.no_report || !core::SameFile(args.out, capture.file.file.path())) continue;
    return Status::Invalid("--out", fmt::format("'{}' would replace a capture, expected another "
                                                "file",
                                                args.out));
  }
  results.capture = demo::Describe(*captures, effort);

  auto formats = demo::RunFormats(device, *captures, effort, stage);
  if (!formats.ok()) return formats.status();
  results.formats = std::move(formats).value();
  results.path = results.formats.front().path;
  auto profile = demo::RunProfile(device, captures->back());
  if (!profile.ok()) return profile.status();
  results.profile = std::move(profile).value();
  auto decode = demo::RunDecode(device, captures->front(), effort, stage);
  if (!decode.ok()) return decode.status();
  results.decode = std::move(decode).value();
  stage("plans");
  auto plans = demo::RunPlans(device.spec());
  if (!plans.ok()) return plans.status();
  results.plans = std::move(plans).value();
  stage("forks");
  auto fork = demo::RunFork(device, captures->front());
  if (!fork.ok()) return fork.status();
  results.fork = std::move(fork).value();
  return Status::Ok();
}

Status WriteReport(const std::string& path, const demo::DemoResults& results) {
  const std::string html = demo::RenderReport(results);
  const std::array<std::span<const std::byte>, 1> parts = {std::as_bytes(std::span(html))};
  return core::WriteFile(path, parts);
}

int RunDemo(const DemoArgs& args) {
  const auto begin = std::chrono::steady_clock::now();
  if (!args.no_report) {
    const Status writable = core::CheckWritable(args.out);
    if (!writable.ok()) return Fail(writable);
  }
  const Result<Device> device = OpenDevice(args.device);
  if (!device.ok()) return Fail(device.status());
  demo::DemoResults results;
  results.command = CommandLine(args);
  results.date = UtcDate();
  results.version = KVILT_VERSION;
  results.machine = ThisMachine();
  results.device = args.device.device;
  results.threads = device->spec().slots;
  const Status status = RunParts(args, *device, results);
  if (!status.ok()) return Fail(status);
  results.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}", demo::RenderText(results));
  if (!args.no_report) {
    const Status written = WriteReport(args.out, results);
    if (!written.ok()) return Fail(written);
    fmt::print("\nReport with plots: {}\n", args.out);
  }
  return kExitOk;
}

}  // namespace

void AddDemoCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("demo", "A real capture through every format, with a report to look at");
  command->footer(kFooter);
  auto args = std::make_shared<DemoArgs>();
  command
      ->add_option("--data", args->data,
                   "Folder of captures; default: the installed one, the source tree's, ./data")
      ->type_name("DIR");
  CLI::Option* out = command->add_option("--out", args->out, "Where the HTML report goes")
                         ->type_name("FILE")
                         ->capture_default_str();
  command->add_flag("--no-report", args->no_report, "Print only")->excludes(out);
  command->add_flag("--quick", args->quick, "Fewer contexts, rows and runs; for tests");
  AddDeviceOptions(*command, args->device);
  command->callback([args, &exit_code] { exit_code = RunDemo(*args); });
}

}  // namespace kvilt::cli
