// The merge of states and the copies of rows on the emulator, against src/cpu and plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/contract/formats.h"
#include "src/core/random.h"
#include "src/cpu/merge_states.h"
#include "src/emulator/emulator.h"
#include "src/kernels/copy_rows.cuh"
#include "src/kernels/merge_states.cuh"

namespace kvilt {
namespace {

using contract::Format;
using contract::i32;
using contract::i64;
using contract::u16;
using contract::u8;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---------------------------------------------------------------- states

struct State {
  Format format = Format::kF32;
  std::vector<u8> out;
  std::vector<float> lse;
};

struct Merge {
  i64 rows = 3, heads = 2, head_dim = 128;
  bool base_two = false;
  std::vector<State> states;
  State result;

  i64 ElementBytes(Format format) const { return format == Format::kF32 ? 4 : 2; }
  State MakeState(Format format) const {
    State state;
    state.format = format;
    state.out.assign(static_cast<std::size_t>(rows * heads * head_dim * ElementBytes(format)), 0);
    state.lse.assign(static_cast<std::size_t>(rows * heads), -kInfinity);
    return state;
  }
  contract::StateParams Params(State& state) const {
    const i64 row = head_dim * ElementBytes(state.format);
    return {state.out.data(),
            static_cast<i32>(state.format),
            0,
            heads * row,
            row,
            state.lse.data(),
            heads,
            1};
  }
  float Value(const State& state, i64 i) const {
    if (state.format == Format::kF32) {
      float x = 0;
      std::memcpy(&x, &state.out[static_cast<std::size_t>(4 * i)], 4);
      return x;
    }
    u16 half = 0;
    std::memcpy(&half, &state.out[static_cast<std::size_t>(2 * i)], 2);
    return state.format == Format::kBF16 ? contract::DecodeBF16(half) : contract::DecodeF16(half);
  }
  void Set(State& state, i64 i, float x) const {
    if (state.format == Format::kF32) {
      std::memcpy(&state.out[static_cast<std::size_t>(4 * i)], &x, 4);
      return;
    }
    const u16 half =
        state.format == Format::kBF16 ? contract::EncodeBF16(x) : contract::EncodeF16(x);
    std::memcpy(&state.out[static_cast<std::size_t>(2 * i)], &half, 2);
  }
  State& Add(Format format, std::uint64_t seed, float lse_range) {
    State state = MakeState(format);
    core::Random random(seed);
    const auto uniform = [&] { return static_cast<float>(random.Below(1 << 20)) / (1 << 20); };
    for (float& lse : state.lse) lse = (2 * uniform() - 1) * lse_range;
    // One sign: sums of both signs cancel, and have no relative error to speak of.
    for (i64 i = 0; i < rows * heads * head_dim; ++i) Set(state, i, 0.5f + uniform());
    states.push_back(std::move(state));
    return states.back();
  }
};

// Of two results, NaN equal to NaN.
void ExpectClose(float got, float wanted, double tolerance) {
  if (std::isnan(wanted) || std::isinf(wanted) || wanted == 0.0f) {
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted) << got << " " << wanted;
    return;
  }
  EXPECT_NEAR(got, wanted, tolerance * std::abs(double{wanted}));
}

// The CPU's merge into one result and the kernel's into another, or, in place, into a state.
void CheckMerge(Merge merge, int in_place = -1, std::uint64_t seed = 1) {
  const auto run = [&](bool kernel) {
    Merge m = merge;
    State& result = in_place >= 0 ? m.states[static_cast<std::size_t>(in_place)] : m.result;
    std::vector<contract::StateParams> params;
    for (State& state : m.states) params.push_back(m.Params(state));
    if (kernel) {
      contract::MergeStatesArgs args{params.data(),    static_cast<i64>(params.size()),
                                     m.Params(result), m.rows,
                                     m.heads,          m.head_dim,
                                     m.base_two};
      emulator::Launch({2, contract::kMergeStatesThreads, 0, seed},
                       [&] { kernels::MergeStates(args); });
      return result;
    }
    const auto of = [](const contract::StateParams& p) {
      return cpu::MergeState{p.out,
                             static_cast<Format>(p.format),
                             p.row_stride,
                             p.head_stride,
                             p.lse,
                             p.lse_row_stride,
                             p.lse_head_stride};
    };
    std::vector<cpu::MergeState> states;
    states.reserve(params.size());
    for (const auto& p : params) states.push_back(of(p));
    cpu::WorkerPool pool(1);
    cpu::MergeStates(states, of(m.Params(result)), {m.rows, m.heads, m.head_dim, m.base_two}, pool);
    return result;
  };
  const State wanted = run(false);
  const State got = run(true);
  const double rounding = wanted.format == Format::kF32   ? 1e-6
                          : wanted.format == Format::kF16 ? 1.0 / 1024
                                                          : 1.0 / 128;
  for (i64 i = 0; i < merge.rows * merge.heads * merge.head_dim; ++i) {
    ExpectClose(merge.Value(got, i), merge.Value(wanted, i), rounding);
  }
  for (std::size_t i = 0; i < wanted.lse.size(); ++i) ExpectClose(got.lse[i], wanted.lse[i], 1e-6);
}

TEST(MergeStatesKernel, AnyNumberOfStates) {
  for (const bool base_two : {false, true}) {
    for (const int count : {1, 2, 7, 31, 32, 33, 100}) {
      SCOPED_TRACE(count);
      Merge merge;
      merge.base_two = base_two;
      merge.head_dim = count % 2 == 0 ? 128 : 300;
      merge.result = merge.MakeState(Format::kF32);
      for (int s = 0; s < count; ++s) {
        merge.Add(static_cast<Format>(s % 3), static_cast<std::uint64_t>(s) + 1000,
                  s % 2 == 0 ? 2.0f : 30.0f);
      }
      CheckMerge(merge);
    }
  }
}

TEST(MergeStatesKernel, EmptyStatesAreNotRead) {
  for (const int present : {0, 1, 2}) {
    Merge merge;
    merge.result = merge.MakeState(Format::kF32);
    for (int s = 0; s < 40; ++s) {
      State& state = merge.Add(Format::kF32, static_cast<std::uint64_t>(s), 5.0f);
      if (s >= 40 - present) continue;
      for (float& lse : state.lse) lse = -kInfinity;
      for (i64 i = 0; i < merge.rows * merge.heads * merge.head_dim; ++i) {
        merge.Set(state, i, std::nanf(""));
      }
    }
    CheckMerge(merge);
  }
}

TEST(MergeStatesKernel, NanInfinityAndFarLses) {
  constexpr float kLses[][3] = {
      {std::numeric_limits<float>::quiet_NaN(), 1, 2},
      {1, std::numeric_limits<float>::quiet_NaN(), -kInfinity},
      {kInfinity, 1, 2},
      {3e38f, -3e38f, 3e38f},
      {-1e5f, -1e5f - 80, -1e5f - 900},
      {1e-7f, -100, -200},
  };
  for (const auto& lses : kLses) {
    SCOPED_TRACE(lses[0]);
    Merge merge;
    merge.result = merge.MakeState(Format::kF32);
    for (const float lse : lses) {
      State& state = merge.Add(Format::kF32, 5, 1.0f);
      for (float& each : state.lse) each = lse;
    }
    CheckMerge(merge);
  }
}

TEST(MergeStatesKernel, IntoOneOfTheStates) {
  for (const Format format : {Format::kF32, Format::kBF16, Format::kF16}) {
    for (int in_place = 0; in_place < 3; ++in_place) {
      Merge merge;
      merge.head_dim = 576;
      for (std::uint64_t s = 0; s < 3; ++s) merge.Add(format, s, 3.0f);
      CheckMerge(merge, in_place, 9);
    }
  }
}

// ---------------------------------------------------------------- copies

struct Pages {
  i64 pages = 6, page_size = 8, heads = 3, row_bytes = 40, padding = 0, granule = 1;
  bool hnd = false;

  i64 Row() const { return row_bytes + padding; }
  std::vector<u8> Fill(std::uint64_t seed) const {
    std::vector<u8> bytes(static_cast<std::size_t>(pages * page_size * heads * Row()));
    core::Random random(seed);
    for (u8& byte : bytes) byte = static_cast<u8>(random.Next());
    return bytes;
  }
  contract::CopiedTensor Params(std::vector<u8>& bytes) const {
    return {bytes.data(),
            page_size * heads * Row(),
            hnd ? Row() : heads * Row(),
            hnd ? page_size * Row() : Row(),
            row_bytes,
            granule};
  }
};

void CopyPlainly(const contract::CopiedTensor& t, i64 heads,
                 const std::vector<contract::CopiedPage>& copies) {
  for (const contract::CopiedPage& copy : copies) {
    const i64 rows = (copy.rows + t.granule - 1) / t.granule * t.granule;
    for (i64 head = 0; head < heads; ++head) {
      for (i64 row = 0; row < rows; ++row) {
        u8* const at = t.data + head * t.head_stride + row * t.token_stride;
        std::memcpy(at + copy.to * t.page_stride, at + copy.from * t.page_stride,
                    static_cast<std::size_t>(t.row_bytes));
      }
    }
  }
}

void CheckCopies(const std::vector<contract::CopiedPage>& copies, bool apart) {
  const Pages shapes[] = {{6, 8, 3, 64, 0, 1, false},
                          {6, 8, 3, 40, 3, 1, true},
                          {6, 8, 3, 8, 0, 4, false},
                          {6, 8, 3, 256, 16, 1, true}};
  std::vector<u8> wanted[4], got[4];
  contract::CopyRowsArgs args;
  args.tensor_count = 4;
  args.apart = apart;
  args.heads = 3;
  args.page_size = 8;
  args.copies = copies.data();
  args.copy_count = static_cast<i64>(copies.size());
  for (std::size_t t = 0; t < 4; ++t) {
    wanted[t] = got[t] = shapes[t].Fill(t);
    args.tensors[t] = shapes[t].Params(got[t]);
    CopyPlainly(shapes[t].Params(wanted[t]), 3, copies);
  }
  emulator::Launch({3, contract::kWriterThreads, 0, 7}, [&] { kernels::CopyRows(args); });
  for (std::size_t t = 0; t < 4; ++t) EXPECT_TRUE(got[t] == wanted[t]) << "tensor " << t;
}

TEST(CopyRowsKernel, CopiesThatAreApartAndChains) {
  CheckCopies({}, true);
  CheckCopies({{0, 1, 8}, {2, 3, 5}, {4, 5, 0}}, true);
  CheckCopies({{0, 1, 8}, {0, 3, 5}, {0, 5, 2}}, true);
  CheckCopies({{0, 1, 8}, {1, 2, 6}, {2, 0, 3}, {5, 2, 1}, {2, 4, 7}}, false);
}

}  // namespace
}  // namespace kvilt
