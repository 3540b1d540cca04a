// kFixed: a row's bits are a function of its own request (SEMANTICS section 4).
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "test/conformance_fixture.h"

namespace kvilt {
namespace {

// The rows of request `slot`.
std::vector<std::string> RowsOf(const core::Problem& problem, const Outcome& outcome,
                                std::int64_t slot) {
  std::int64_t first = 0;
  for (std::int64_t r = 0; r < slot; ++r) first += problem.q_len[static_cast<std::size_t>(r)];
  const auto begin = outcome.rows.begin() + first;
  return {begin, begin + problem.q_len[static_cast<std::size_t>(slot)]};
}

std::vector<std::string> RowsOf(const std::string& text, std::int64_t slot,
                                const Device& device = TestDevice()) {
  const Outcome outcome = RunText(text, device);
  return RowsOf(core::ParseProblem(text).value(), outcome, slot);
}

const std::string kShape = " heads=8/2 d=64 kv_dtype=nvfp4 split=fixed:256 ";

TEST(FixedSplits, P42_alone_and_in_any_batch) {
  const Outcome alone = RunText("decode kv=3000 ids=42" + kShape);
  EXPECT_EQ(alone.plan.split.mode, SplitMode::kFixed);
  EXPECT_EQ(alone.plan.split.max_splits, 12);
  const struct {
    const char* text;
    std::int64_t slot;
  } batches[] = {
      {"decode kv=3000,77 ids=42,1", 0},
      {"decode kv=77,3000 ids=1,42", 1},
      {"decode kv=8x100,3000,8x5000 ids=8x1,42,8x2", 8},
      {"decode kv=63x40,3000 ids=63x3,42", 63},
      {"prefill q=40,1,7 kv=500,3000,900 ids=1,42,2", 1},
      {"decode q=1,0,1 kv=0,5,3000 ids=1,2,42", 2},
  };
  for (const auto& batch : batches) {
    EXPECT_EQ(RowsOf(batch.text + kShape, batch.slot), alone.rows) << batch.text;
  }
}

TEST(FixedSplits, P43_holds_with_every_variant) {
  for (const char* variant :
       {"window=1023", "cap=50", "q=3 mask=custom", "q=5 mask=tree", "alibi=bottom_right sink=1",
        "rope=half", "kv_dtype=bf16", "accuracy=f32", "accuracy=near_exact", "out=f32 lse=two",
        "segments=64:bf16,rest:nvfp4,30:e4m3", "q=6 window=700/0 cap=20 sink=0 sigma=5.6",
        "path=cpu/f32", "q_dtype=f32 kv_dtype=f16"}) {
    std::string shape = kShape;
    const std::string words = variant;
    if (words.find("kv_dtype") != std::string::npos) shape = " heads=8/2 d=64 split=fixed:256 ";
    const auto alone = RowsOf("decode kv=2500 ids=42 " + words + shape, 0);
    EXPECT_EQ(RowsOf("decode kv=33,2500,4000 ids=1,42,2 " + words + shape, 1), alone) << variant;
    EXPECT_EQ(RowsOf("decode kv=2500 ids=42 page=128 " + words + shape, 0), alone) << variant;
    EXPECT_EQ(
        RowsOf("decode kv=2500 ids=42 cache=ragged " + words + shape, 0, TestDevice("cpu", 1)),
        alone)
        << variant;
  }
}

// One row through every way in: by itself, and beside requests whose many rows are tiled otherwise.
TEST(FixedSplits, P44_prefill_and_decode_of_one_row) {
  const Outcome alone = RunText("decode kv=2300 ids=4" + kShape);
  ASSERT_GT(alone.plan.split.max_splits, 8);
  for (const char* words : {"", " cache=ragged", " cache=ragged layout=nhd"}) {
    const std::string batch =
        std::string("prefill q=300,1,70 kv=900,2300,500 ids=1,4,2 mask=causal") + words;
    EXPECT_EQ(RowsOf(batch + kShape, 1, TestDevice("cpu", 3)), alone.rows) << words;
    const std::string verify = std::string("verify q=4,1 kv=40,2300 ids=7,4") + words;
    EXPECT_EQ(RowsOf(verify + kShape, 1), alone.rows) << words;
  }
}

TEST(FixedSplits, P71_page_size_and_order) {
  const auto reference = RunText("decode kv=1000 ids=4 page=16" + kShape).rows;
  for (const char* words : {"page=1", "page=128", "page=3", "page=16 pages=ordered", "cache=ragged",
                            "cache=ragged layout=nhd", "layout=nhd", "k_layout=nhd pool=kv",
                            "pool=rows", "pad=16/2", "table=padded index=i64", "shift=1",
                            "lengths=last_page_len", "scale_layout=interleaved4", "poison=off"}) {
    EXPECT_EQ(RunText(std::string("decode kv=1000 ids=4 ") + words + kShape).rows, reference)
        << words;
  }
}

TEST(FixedSplits, ThreadCountChangesNothing) {
  const std::string text = "decode q=1,9,1 kv=3000,400,77" + kShape;
  const auto reference = RunText(text, TestDevice("cpu", 1)).rows;
  for (int threads : {2, 3, 7})
    EXPECT_EQ(RunText(text, TestDevice("cpu", threads)).rows, reference);
}

// A request among random others, at a random place, under random storage.
RC_GTEST_PROP(FixedSplits, BitsDependOnTheRequestAlone, ()) {
  const auto in = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high);
  };
  const std::int64_t kv = in(1, 700), q = in(1, 6), split = in(1, 20) * 13;
  const std::string dtype = *rc::gen::element<std::string>("nvfp4", "bf16", "e4m3", "f16");
  const std::string mask = *rc::gen::element<std::string>("causal", "none", "custom");
  const std::string fixed = " heads=4/2 d=32 kv_dtype=" + dtype + " mask=" + mask +
                            " split=fixed:" + std::to_string(split);
  const std::string alone =
      "decode q=" + std::to_string(q) + " kv=" + std::to_string(kv) + " ids=7" + fixed;
  const std::int64_t others = in(1, 4), slot = in(0, others + 1);
  std::string q_list, kv_list, ids;
  for (std::int64_t r = 0; r <= others; ++r) {
    const std::string comma = r == 0 ? "" : ",";
    q_list += comma + std::to_string(r == slot ? q : in(0, 6));
    kv_list += comma + std::to_string(r == slot ? kv : in(0, 700));
    ids += comma + std::to_string(r == slot ? 7 : 100 + r);
  }
  const std::string batch =
      "decode q=" + q_list + " kv=" + kv_list + " ids=" + ids + fixed +
      " page=" + std::to_string(in(1, 40)) +
      *rc::gen::element<std::string>("", " layout=nhd", " cache=ragged", " pool=rows", " pad=3/1");
  RC_LOG() << alone << "\n" << batch << "\n";
  const Device& device = TestDevice("cpu", static_cast<int>(in(1, 4)));
  RC_ASSERT(RowsOf(batch, slot, device) == RowsOf(alone, 0));
}

TEST(Splits, ReallyHappen) {
  for (const char* text : {"decode kv=8192 heads=2/1 d=64", "decode kv=8192,100 heads=2/1 d=64",
                           "decode kv=4096 heads=2/1 d=64 kv_dtype=nvfp4 q=2"}) {
    const Outcome outcome = RunText(text, TestDevice("cpu", 4));
    EXPECT_GT(outcome.plan.split.max_splits, 1) << text;
    EXPECT_GT(outcome.plan.split.merged_rows, 0) << text;
    EXPECT_EQ(RunText(std::string(text) + " split=off", TestDevice("cpu", 4)).plan.split.max_splits,
              1)
        << text;
    EXPECT_EQ(
        RunText(std::string(text) + " workspace=0", TestDevice("cpu", 4)).plan.workspace_bytes, 0)
        << text;
  }
}

}  // namespace
}  // namespace kvilt
