#include "src/core/problem.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "src/core/problem_words.h"

namespace kvilt::core {
namespace {

Problem Parse(const std::string& text) {
  auto problem = ParseProblem(text);
  EXPECT_TRUE(problem.ok()) << text << "\n" << problem.status().message();
  return problem.ok() ? *problem : Problem{};
}

// Values that each word takes, for batches of three requests.
const std::map<std::string, std::vector<std::string>>& Samples() {
  static const std::map<std::string, std::vector<std::string>> samples = {
      {"b", {"3"}},
      {"q", {"1", "0", "1,2x5", "7,1,0"}},
      {"kv", {"4096", "2k", "1000,2x64", "5,0,77"}},
      {"heads", {"32/8", "7", "1/1"}},
      {"d", {"128", "512/256", "64/72"}},
      {"kv_dtype", {"nvfp4", "bf16", "f32"}},
      {"k_dtype", {"e4m3", "bf16"}},
      {"v_dtype", {"e5m2", "f16", "nvfp4"}},
      {"layout", {"hnd", "nhd"}},
      {"k_layout", {"hnd", "nhd"}},
      {"v_layout", {"hnd", "nhd"}},
      {"global", {"0.01", "1", "1,2x0.3"}},
      {"k_global", {"0.5", "1"}},
      {"v_global", {"1e-3", "2x0.125,0.3"}},
      {"pad", {"16", "16/2", "0"}},
      {"k_pad", {"0", "0/3"}},
      {"v_pad", {"48"}},
      {"shift", {"1", "0"}},
      {"k_shift", {"3", "0"}},
      {"v_shift", {"8"}},
      {"scale_layout", {"linear", "interleaved4"}},
      {"global_as", {"value", "pointer"}},
      {"allow_unusual_scale", {"on", "off"}},
      {"cache", {"paged", "ragged"}},
      {"page", {"1", "16", "128"}},
      {"table", {"csr", "padded"}},
      {"lengths", {"kv_len", "last_page_len"}},
      {"index", {"i32", "i64"}},
      {"pages", {"permuted", "ordered"}},
      {"pool", {"separate", "kv", "rows"}},
      {"segments", {"rest", "64:bf16,rest:nvfp4/e4m3:page=8,16:ragged", "rest:paged,0"}},
      {"shared", {"0:0-2", "0:0+2:nvfp4:page=3,0:1-2"}},
      {"q_dtype", {"f32", "bf16", "f16", "e4m3", "nvfp4"}},
      {"q_scale", {"0.5", "1"}},
      {"q_pad", {"8", "8/16"}},
      {"out", {"f32", "bf16", "f16"}},
      {"out_pad", {"0/3", "1"}},
      {"extra_rows", {"0", "2"}},
      {"lse", {"natural", "two", "none"}},
      {"sm_scale", {"0.1", "-1.5"}},
      {"cap", {"30", "0"}},
      {"mask", {"none", "causal", "custom", "tree"}},
      {"mask_indptr", {"on", "off"}},
      {"window", {"17", "17/3", "-1/0", "-1"}},
      {"q_positions", {"none", "offset:-5", "random:100"}},
      {"alibi", {"off", "bottom_right", "row_index"}},
      {"bias_before_cap", {"on", "off"}},
      {"sink", {"0", "-2.5"}},
      {"kv_settled", {"on", "off"}},
      {"rope", {"half", "interleaved"}},
      {"rope_frequency", {"rotary", "proportional"}},
      {"rope_theta", {"500000", "10000"}},
      {"rope_dim", {"64", "0"}},
      {"rope_scale", {"2", "1"}},
      {"rope_llama31", {"1/4/8192", "1.5/4/64"}},
      {"key_positions", {"none", "offset:7", "random:1000000"}},
      {"split", {"auto", "off", "fixed:17"}},
      {"workspace", {"0", "-1", "1m"}},
      {"accuracy", {"normal", "near_exact", "f32"}},
      {"path", {"cpu/f32"}},
      {"cascade", {"on", "off"}},
      {"check_pages", {"on", "off"}},
      {"sigma", {"0.3", "0.9", "5.6"}},
      {"seed", {"0", "123456789012345"}},
      {"ids", {"5,2x7", "-1,0,1"}},
      {"prefix", {"0", "17"}},
      {"data", {"lognormal", "iid", "extreme"}},
      {"poison", {"pages", "keys", "off"}},
  };
  return samples;
}

TEST(Problem, EveryWordHasSamplesThatParse) {
  for (const Word& word : Words()) {
    ASSERT_TRUE(Samples().contains(word.name)) << word.name;
    for (const std::string& value : Samples().at(word.name)) {
      Parse("decode b=3 kv=100 " +
            (word.name == "b" || word.name == "kv" ? std::string() : word.name + "=" + value));
    }
  }
}

// A word that changed nothing would be an option that the grammar accepts and ignores.
TEST(Problem, EveryWordChangesTheProblem) {
  for (const Word& word : Words()) {
    if (word.name == "b") continue;
    const std::string rest = word.name == "kv" ? "decode" : "decode kv=3x100";
    const Problem plain = Parse(rest);
    bool changed = false;
    for (const std::string& value : Samples().at(word.name)) {
      changed |= Parse(rest + " " + word.name + "=" + value) != plain;
    }
    EXPECT_TRUE(changed) << word.name;
  }
}

RC_GTEST_PROP(Problem, RoundTripsThroughItsText, ()) {
  std::string text = *rc::gen::element<std::string>("decode", "prefill", "verify") + " b=3";
  for (const Word& word : Words()) {
    if (word.name == "b" || !*rc::gen::weightedElement<bool>({{2, false}, {1, true}})) continue;
    text += " " + word.name + "=" + *rc::gen::elementOf(Samples().at(word.name));
  }
  const Problem problem = Parse(text);
  const std::string canonical = ToText(problem);
  const Problem again = Parse(canonical);
  RC_LOG() << text << "\n" << canonical << "\n";
  RC_ASSERT(again == problem);
  RC_ASSERT(ToText(again) == canonical);
}

TEST(Problem, LengthsComeFromTheBatchThePhaseAndLists) {
  EXPECT_EQ(Parse("decode b=3 kv=4k").kv_len, (std::vector<std::int64_t>{4096, 4096, 4096}));
  EXPECT_EQ(Parse("decode b=3").q_len, (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(Parse("prefill kv=7,9").q_len, (std::vector<std::int64_t>{7, 9}));
  EXPECT_EQ(Parse("verify kv=7").q_len, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(Parse("decode kv=131072,63x1024").batch(), 64);
  EXPECT_EQ(Parse("prefill q=1,4x5 kv=64").kv_len, (std::vector<std::int64_t>(5, 64)));
  EXPECT_EQ(ToText(Parse("decode kv=131072,63x1024")),
            "decode b=64 kv=131072,63x1024 heads=32/8 d=128");
}

TEST(Problem, OneSideOverridesBothInAnyOrder) {
  const Problem problem = Parse("decode v_dtype=e4m3 kv_dtype=nvfp4");
  EXPECT_EQ(problem.k.dtype, DType::kNVFP4);
  EXPECT_EQ(problem.v.dtype, DType::kE4M3);
}

TEST(Problem, SegmentsTakeTheirKeysInOrder) {
  const Problem problem =
      Parse("decode kv=200,90,20 shared=16:0+2 segments=64:bf16,rest:nvfp4,16:bf16");
  const auto lengths = [&](std::int64_t r) {
    std::vector<std::int64_t> all;
    for (std::int64_t s = 0; s < 4; ++s) all.push_back(SegmentLength(problem, r, s));
    return all;
  };
  EXPECT_EQ(lengths(0), (std::vector<std::int64_t>{16, 64, 104, 16}));
  EXPECT_EQ(lengths(1), (std::vector<std::int64_t>{0, 64, 10, 16}));
  EXPECT_EQ(lengths(2), (std::vector<std::int64_t>{16, 4, 0, 0}));
}

TEST(Problem, ErrorsHoldTheWordAndWhatWasExpected) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "decode, prefill or verify"},
      {"decod kv=4", "decod: expected a problem that begins with"},
      {"decode kvv=4", "kvv=4: no such word; did you mean kv?"},
      {"decode zzzzzz=4", "kvilt problems --help"},
      {"decode page", "page: expected page=N >= 1"},
      {"decode page=0", "page=0: expected an integer N >= 1"},
      {"decode page=9999999999999999999", "page=9999999999999999999: expected an integer"},
      {"decode kv=1,-2", "kv=1,-2: expected lengths >= 0"},
      {"decode kv=0x5", "expected a list of values"},
      {"decode kv=9000000000000000000k", "expected a list of values"},
      {"decode kv=2000000x1", "at most 1048576 values"},
      {"decode b=2 kv=1,2,3", "kv: 3 values, expected 1 or 2 (the batch)"},
      {"decode kv=1 kv=2", "kv=2: given twice"},
      {"decode mask=causl", "mask=causl: expected none|causal|custom|tree"},
      {"decode split=fixed", "split=fixed: expected auto, off or fixed:N"},
      {"decode kv_dtype=int4", "kv_dtype=int4: expected f32|bf16|f16|e4m3|e5m2|nvfp4"},
      {"decode sigma=nan", "sigma=nan: expected a finite number"},
      {"decode segments=64:bf16", "exactly one segment of length `rest`"},
      {"decode segments=rest:blue", "after the length a dtype"},
      {"decode shared=5:0-1", "shared: owner 1, expected 0 to 0"},
      {"decode kv=4 shared=5:0", "shared: 5 keys for request 0, expected at most its kv of 4"},
      {"decode b=2 ids=1", "ids: 1 values, expected 2"},
      {"decode b=0", "b=0: expected an integer in 1..1048576"},
      {"decode b=2m", "b=2m: expected an integer in 1..1048576"},
      {"decode heads=70000/1", "expected query heads / KV heads in 1..65536, such as 32/8"},
      {"decode d=70000", "expected a head dim in 1..65536, or two such as 512/256"},
      {"decode global=nan", "global=nan: expected finite numbers such as 0.01 or 1,0.5,2x0.25"},
      {"decode sigma=-1", "sigma=-1: expected a finite number >= 0"},
      {"decode path=\x1b[31m", "path=\\x1B[31m: expected a name"},
      {"decode \x07=1", "\\x07=1: no such word"},
  };
  for (const auto& [text, expected] : cases) {
    const auto problem = ParseProblem(text);
    ASSERT_FALSE(problem.ok()) << text;
    EXPECT_NE(problem.status().message().find(expected), std::string::npos)
        << text << "\n"
        << problem.status().message();
  }
}

TEST(Problem, FilesHoldOneProblemALine) {
  const auto problems =
      ParseProblemFile("# decode at 4k\n\ndecode kv=4k # here\nprefill kv=9\n", "x");
  ASSERT_TRUE(problems.ok());
  EXPECT_EQ(problems->size(), 2u);
  const auto bad = ParseProblemFile("decode\ndecode page=0\n", "x.problem");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "x.problem:2: page=0: expected an integer N >= 1");
}

TEST(Problem, ArgumentsAreLinesOrWords) {
  const std::vector<std::string> arguments = {"decode kv=5", "decode", "b=2", "kv=64", "verify"};
  const auto problems = ProblemsFromArguments(arguments);
  ASSERT_TRUE(problems.ok()) << problems.status().message();
  ASSERT_EQ(problems->size(), 3u);
  EXPECT_EQ((*problems)[1], Parse("decode b=2 kv=64"));
  const std::vector<std::string> missing = {"no/such/file.problem"};
  EXPECT_FALSE(ProblemsFromArguments(missing).ok());
}

TEST(Problem, FilesWithoutAProblemAreRefusedByName) {
  const std::string folder = ::testing::TempDir();
  const std::string path = folder + "/kvilt_problem_test.problem";
  const auto error = [&](const std::string& text) {
    std::ofstream(path) << text;
    const std::vector<std::string> arguments = {path};
    const auto problems = ProblemsFromArguments(arguments);
    std::filesystem::remove(path);
    return problems.ok() ? "" : problems.status().message();
  };
  EXPECT_EQ(error("decode kv=64\n"), "");
  EXPECT_EQ(error("# none\n\n"), path + ": no problem in the file, expected one a line");
  EXPECT_EQ(error(""), path + ": no problem in the file, expected one a line");
  EXPECT_EQ(error("\x1b[31mdecode"),
            path +
                ":1: \\x1B[31mdecode: expected a problem that begins with decode, prefill or "
                "verify, such as `decode b=8 kv=4096 heads=32/8 d=128`");
  const std::vector<std::string> arguments = {folder};
  EXPECT_EQ(ProblemsFromArguments(arguments).status().message(),
            folder + ": cannot be read, expected a problem file");
}

TEST(Problem, HelpNamesEveryWord) {
  const std::string help = GrammarHelp();
  for (const Word& word : Words()) EXPECT_NE(help.find("  " + word.name), std::string::npos);
}

}  // namespace
}  // namespace kvilt::core
