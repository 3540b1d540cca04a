// The built command from outside: exit codes, what goes to stdout, and the shape of its JSON.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/report/xml_check.h"

namespace kvilt::cli {
namespace {

using nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome Kvilt(const std::string& arguments) {
  const std::filesystem::path err_path =
      std::filesystem::temp_directory_path() /
      ("kvilt_command_test." + std::to_string(getpid()) + ".err");
  const std::string line =
      std::string("'") + KVILT_BINARY + "' " + arguments + " 2>" + err_path.string();
  Outcome outcome;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::stringstream text;
  text << std::ifstream(err_path).rdbuf();
  outcome.err = text.str();
  std::filesystem::remove(err_path);
  return outcome;
}

void ExpectUsageError(const std::string& arguments, const std::string& mentions) {
  const Outcome outcome = Kvilt(arguments);
  EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << arguments;
  EXPECT_NE(outcome.err.find(mentions), std::string::npos) << arguments << "\n" << outcome.err;
}

TEST(Command, WrongUsageSaysWhatWasExpected) {
  ExpectUsageError("", "expected a command: demo");
  ExpectUsageError("bnech", "did you mean 'bench'?");
  ExpectUsageError("frobnicate", "expected one of: demo");
  ExpectUsageError("plan --jsn 'decode kv=64'", "did you mean '--json'?");
  ExpectUsageError("plan", "problem is required");
  ExpectUsageError("info --threads 2", "no option '--threads'");
  ExpectUsageError("info surplus", "no use for the argument 'surplus'");
  ExpectUsageError("bench --threads many 'decode kv=64'", "--threads");
  ExpectUsageError("bench --threads -3 'decode kv=64'", "--threads");
}

TEST(Command, WrongProblemsAndDevicesAreUsageErrorsToo) {
  ExpectUsageError("plan 'decode kv=sixty'", "sixty");
  ExpectUsageError("plan 'decode kvv=64'", "kvv");
  ExpectUsageError("plan --device gpu0 'decode kv=64'", "gpu0");
  ExpectUsageError("bench --device gpu0 'decode kv=64'", "gpu0");
  ExpectUsageError("bench /no/such/file.txt", "/no/such/file.txt");
}

TEST(Command, HelpTeachesWithExamples) {
  const Outcome top = Kvilt("--help");
  EXPECT_EQ(top.exit_code, 0);
  for (const char* command :
       {"demo", "run", "check", "plan", "bench", "inspect", "problems", "info"}) {
    const Outcome help = Kvilt(std::string(command) + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_NE(help.out.find(std::string("kvilt ") + command), std::string::npos)
        << command << " has no example:\n"
        << help.out;
    EXPECT_NE(top.out.find(std::string("kvilt ") + command), std::string::npos)
        << "kvilt --help has no example of " << command;
  }
  EXPECT_EQ(Kvilt("--version").out.rfind("kvilt ", 0), 0u);
}

TEST(Command, InfoJson) {
  const Outcome outcome = Kvilt("info --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json info = json::parse(outcome.out);
  ASSERT_FALSE(info.at("devices").empty());
  int defaults = 0;
  for (const json& device : info["devices"]) {
    EXPECT_EQ(device.at("name").get<std::string>(), "cpu:" + device.at("simd").get<std::string>());
    defaults += device.at("default").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(defaults, 1);
  EXPECT_GT(info.at("machine").at("threads").get<int>(), 0);
  for (const char* key : {"version", "compiler", "build_type", "dependencies"}) {
    EXPECT_TRUE(info.contains(key)) << key;
  }
}

TEST(Command, PlanJson) {
  const Outcome outcome =
      Kvilt("plan --threads 4 --json 'decode b=2 kv=4096 heads=8/2 d=64 kv_dtype=nvfp4'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  for (const char* key : {"device", "path", "tile"}) EXPECT_TRUE(plan.contains(key)) << key;
  EXPECT_TRUE(plan.at("smem").at("total_bytes").is_number());
  EXPECT_TRUE(plan.at("smem").at("limit_bytes").is_number());
  EXPECT_TRUE(plan.at("smem").contains("parts"));
  EXPECT_EQ(plan.at("split").at("mode"), "auto");
  EXPECT_GT(plan.at("split").at("items").get<int>(), 0);
  EXPECT_GT(plan.at("split").at("max_splits").get<int>(), 0);
  EXPECT_GE(plan.at("workspace_bytes").get<std::int64_t>(), 0);
  EXPECT_TRUE(plan.at("refused").is_array());

  const Outcome two = Kvilt("plan --json 'decode kv=64' 'decode kv=128'");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(json::parse(two.out).size(), 2u);
}

TEST(Command, PlanNeedsNoSuchDeviceAndRefusesByName) {
  EXPECT_EQ(Kvilt("plan --device cpu:neon 'decode kv=64'").exit_code, 0);
  // Nor as much memory as the problem has: 275 GB of KV.
  EXPECT_EQ(Kvilt("plan 'decode b=64 kv=1048576 heads=32/8 d=128'").exit_code, 0);
  const Outcome refused = Kvilt("plan 'decode kv=64 heads=5/2'");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("heads"), std::string::npos) << refused.err;
}

TEST(Command, BenchJson) {
  const Outcome outcome = Kvilt(
      "bench --threads 1 --seconds 0 --json 'decode kv=256 heads=4/2 d=64 kv_dtype=nvfp4' "
      "'decode kv=64 heads=5/2 d=64'");
  EXPECT_EQ(outcome.exit_code, 1);  // The second is refused.
  const json list = json::parse(outcome.out);
  ASSERT_EQ(list.size(), 2u);
  const json& good = list[0];
  for (const char* key :
       {"us", "ns_per_token", "gb_per_s", "ceiling_gb_per_s", "share_of_ceiling"}) {
    EXPECT_GT(good.at(key).get<double>(), 0) << key;
  }
  EXPECT_NEAR(good["ns_per_token"].get<double>(), good["us"].get<double>() * 1e3 / 256 / 2, 1e-6);
  EXPECT_NEAR(good["share_of_ceiling"].get<double>(),
              good["gb_per_s"].get<double>() / good["ceiling_gb_per_s"].get<double>(), 1e-9);
  EXPECT_EQ(good.at("threads"), 1);
  EXPECT_EQ(good.at("device").get<std::string>().rfind("cpu:", 0), 0u);
  EXPECT_EQ(good.at("bytes_per_token"), 2 * 2 * 36.0);
  EXPECT_EQ(good.at("checked").at("out_not_finite"), 0);
  EXPECT_LT(good.at("rel_l2").get<double>(), 4.5e-3);
  EXPECT_GT(good["rel_l2"].get<double>(), 0);
  EXPECT_TRUE(good.at("failure").is_null());
  EXPECT_EQ(good.at("split").at("mode"), "auto");
  EXPECT_TRUE(good.at("problem").is_string());
  EXPECT_TRUE(list[1].at("us").is_null());  // No time without a right answer.
  EXPECT_FALSE(list[1].at("failure").get<std::string>().empty());
}

// A file in the temporary folder, gone with the object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text)
      : path_((std::filesystem::temp_directory_path() /
               ("kvilt_command_test." + std::to_string(getpid()) + "." + name))
                  .string()) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Command, AFileWithoutAProblemIsRefusedByName) {
  const TemporaryFile empty("problem", "# nothing yet\n");
  for (const char* command : {"plan ", "check ", "bench "}) {
    ExpectUsageError(command + empty.path(), empty.path() + ": no problem in the file");
  }
}

TEST(Command, LostResultsAreNoSuccess) {
  const TemporaryFile read_only("stdout", "x");
  for (const std::string& lost :
       {std::string("info >&-"), "info --json 1<" + read_only.path(), std::string("--help >&-")}) {
    const Outcome outcome = Kvilt(lost);
    EXPECT_EQ(outcome.exit_code, 1) << lost;
    EXPECT_NE(outcome.err.find("results could not be written"), std::string::npos) << lost;
  }
}

// With stdout closed, the report would get its number, and the text of the terminal.
TEST(Command, AClosedStdoutIsNoWayIntoTheOutputFile) {
  const TemporaryFile out("out", "");
  const Outcome outcome = Kvilt("run --cache '" + std::string(KVILT_SOURCE_DATA) +
                                "/smollm2_135m_layer07.safetensors' --out " + out.path() + " >&-");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_EQ(Kvilt("inspect " + out.path()).exit_code, 0);
}

TEST(Command, OptionsThatWouldDoNothingAreUsageErrors) {
  ExpectUsageError("check --seed 3 'decode kv=64'", "--sweep");
  ExpectUsageError("check --problems 3 'decode kv=64'", "--sweep");
  const Outcome outcome = Kvilt("run --page-size -1 --out x --cache y");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_LT(outcome.err.size(), 200u) << outcome.err;
}

TEST(Command, AbsurdSizesAreRefusedAtOnce) {
  ExpectUsageError("plan 'decode kv=8192m'", "expected index=i64");
  ExpectUsageError("plan 'decode b=1048576 kv=8192'", "expected at most 67108864");
  const Outcome outcome =
      Kvilt("check --json 'decode b=1024 kv=8m page=1024 heads=64/64 d=512'");  // 1.1 PB
  EXPECT_EQ(outcome.exit_code, 1);
  const json failed = json::parse(outcome.out).at("failed").at(0);
  EXPECT_NE(failed.at("failure").get<std::string>().find("GB of memory"), std::string::npos);
  EXPECT_TRUE(failed.at("refused").get<bool>());
  EXPECT_TRUE(failed.at("rel_l2").is_null());
  EXPECT_TRUE(json::parse(outcome.out).at("worst").is_null());
}

TEST(Command, DemoFindsABadOutputBeforeTheWork) {
  const std::string data = " --quick --data '" + std::string(KVILT_SOURCE_DATA) + "' --out ";
  const Outcome missing = Kvilt("demo" + data + "/no/such/folder/report.html");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.out, "");
  EXPECT_NE(missing.err.find("no such folder"), std::string::npos) << missing.err;
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("kvilt_command_test." + std::to_string(getpid()) + ".data");
  std::filesystem::create_directory(folder);
  const std::string capture = (folder / "a.safetensors").string();
  std::filesystem::copy_file(std::string(KVILT_SOURCE_DATA) + "/smollm2_135m_layer07.safetensors",
                             capture);
  const auto size = std::filesystem::file_size(capture);
  ExpectUsageError("demo --quick --data " + folder.string() + " --out " + capture,
                   "would replace a capture");
  EXPECT_EQ(std::filesystem::file_size(capture), size);
  std::filesystem::remove_all(folder);
}

TEST(Command, PlansForGpusThatAreNotHereAndDrawsThem) {
  const Outcome help = Kvilt("plan --help");
  for (const char* text : {"sm_121", "sm_90:114", "--svg"}) {
    EXPECT_NE(help.out.find(text), std::string::npos) << text;
  }
  const std::filesystem::path picture = std::filesystem::temp_directory_path() /
                                        ("kvilt_command_test." + std::to_string(getpid()) + ".svg");
  const std::string problem = "'decode b=1 kv=131072 heads=16/2 d=512/256 kv_dtype=nvfp4'";
  const Outcome outcome =
      Kvilt("plan --device sm_90:114 --json --svg " + picture.string() + " " + problem);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan.at("device"), "sm_90:114");
  EXPECT_EQ(plan.at("slots"), 114);
  EXPECT_EQ(plan.at("path"), "cuda/prefill");
  EXPECT_GT(plan.at("refused").size(), 5u);
  std::stringstream svg;
  svg << std::ifstream(picture).rdbuf();
  std::filesystem::remove(picture);
  EXPECT_EQ(report::XmlProblem(svg.str()), "");
  for (const char* text : {"131072", ".b113 {", "ideal", "busiest"}) {
    EXPECT_NE(svg.str().find(text), std::string::npos) << text;
  }
  ExpectUsageError("plan --svg x.svg 'decode kv=64' 'decode kv=128'", "2 problems");
}

TEST(Command, DemoOnTheRealCapture) {
  const std::filesystem::path report = std::filesystem::temp_directory_path() /
                                       ("kvilt_command_test." + std::to_string(getpid()) + ".html");
  const Outcome outcome = Kvilt("demo --quick --data '" + std::string(KVILT_SOURCE_DATA) +
                                "' --out " + report.string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // No progress where no person watches.
  for (const char* text : {"NVFP4", "needle mass", "split auto", "is the same to the bit",
                           "equals that of separate copies to the bit"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " in\n" << outcome.out;
  }
  std::stringstream html;
  html << std::ifstream(report).rdbuf();
  std::filesystem::remove(report);
  EXPECT_EQ(report::XmlProblem(html.str()), "");
  EXPECT_GT(html.str().size(), 20'000u);
  EXPECT_EQ(html.str().find("<script"), std::string::npos);
}

TEST(Command, DemoNamesTheFolderThatIsMissing) {
  const Outcome outcome = Kvilt("demo --no-report --data /no/such/folder");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("/no/such/folder"), std::string::npos);
  EXPECT_NE(outcome.err.find("expected"), std::string::npos);
}

}  // namespace
}  // namespace kvilt::cli
