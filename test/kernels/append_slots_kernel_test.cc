// The kernel append_slots on the emulator, against src/api/cache_slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/api/cache_slots.h"
#include "src/core/random.h"
#include "src/emulator/emulator.h"
#include "src/kernels/append_slots.cuh"

namespace kvilt {
namespace {

using contract::i32;
using contract::i64;
using contract::TableKind;

constexpr i64 kPages = 990;  // Some ids of the tables lie beyond.
constexpr i64 kPaddedWidth = 30;

// A table of any kind and the tokens that are appended by it; some requests are empty or get none.
struct Batch {
  TableKind kind = TableKind::kCsr;
  i64 page_size = 1;
  std::vector<i64> lengths;
  std::vector<i64> token_indptr = {0};
  std::vector<i64> indptr = {0};
  std::vector<i64> indices;
  std::vector<i32> short_indices;
  std::vector<i64> begins;

  Batch(TableKind table, core::Random& random)
      : kind(table), page_size(1 + static_cast<i64>(random.Below(5))) {
    const i64 requests = 1 + static_cast<i64>(random.Below(40));
    for (i64 r = 0; r < requests; ++r) {
      const i64 length = static_cast<i64>(random.Below(kPaddedWidth));
      const i64 pages = contract::CeilDiv(length, page_size);
      lengths.push_back(length);
      token_indptr.push_back(token_indptr.back() +
                             std::min(length, static_cast<i64>(random.Below(4))));
      begins.push_back(kind == TableKind::kPadded ? kPaddedWidth * r : indptr.back());
      indptr.push_back(indptr.back() + (kind == TableKind::kRagged ? length : pages));
      for (i64 p = 0; p < (kind == TableKind::kPadded ? kPaddedWidth : pages); ++p) {
        indices.push_back(static_cast<i64>(random.Below(1000)));
      }
    }
    short_indices.assign(indices.begin(), indices.end());
  }

  contract::SegmentParams Segment(bool is_i64) const {
    contract::SegmentParams segment;
    segment.table = static_cast<i32>(kind);
    segment.index_is_i64 = is_i64;
    segment.indptr_is_i64 = 1;
    segment.indices = is_i64 ? static_cast<const void*>(indices.data()) : short_indices.data();
    segment.indptr = indptr.data();
    segment.row_stride = kPaddedWidth;
    segment.page_size = kind == TableKind::kRagged ? indptr.back() : page_size;
    segment.pages = kPages;
    return segment;
  }

  std::vector<i64> SlotsOnHost() const {
    std::vector<i64> slots;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      const i64 count = token_indptr[r + 1] - token_indptr[r];
      api::PushSlots(Segment(true), static_cast<i64>(r), lengths[r] - count, lengths[r], slots);
    }
    for (i64& slot : slots) {
      if (kind != TableKind::kRagged && slot >= kPages * page_size) slot = contract::kAbsentSlot;
    }
    return slots;
  }
};

TEST(AppendSlotsKernel, AgreesWithTablesOfTheHost) {
  core::Random random(4);
  for (int i = 0; i < 90; ++i) {
    SCOPED_TRACE(i);
    const Batch batch(static_cast<TableKind>(i % 3), random);
    std::vector<i64> wanted = batch.SlotsOnHost();
    std::vector<i64> got(wanted.size() + 1, 77);
    wanted.push_back(77);
    contract::AppendSlotsArgs args;
    args.segment = batch.Segment(i % 2 == 0);
    args.segment.indptr = nullptr;
    args.table_begins = batch.begins.data();
    args.token_indptr = batch.token_indptr.data();
    args.kv_lengths = batch.lengths.data();
    args.batch = static_cast<i64>(batch.lengths.size());
    args.slots = got.data();
    emulator::Launch({1 + i % 3, contract::kWriterThreads, 0, static_cast<std::uint64_t>(i)},
                     [&] { kernels::AppendSlots(args); });
    EXPECT_EQ(got, wanted);
  }
}

TEST(AppendSlotsKernel, AnIdBelowZeroIsAbsentAndNoRequestsAreFine) {
  const std::vector<i32> indices = {-1};
  const std::vector<i64> lengths = {2}, indptr = {0, 2}, begins = {0};
  std::vector<i64> slots(2);
  contract::AppendSlotsArgs args;
  args.segment.indices = indices.data();
  args.segment.page_size = 4;
  args.segment.pages = 10;
  args.table_begins = begins.data();
  args.token_indptr = indptr.data();
  args.kv_lengths = lengths.data();
  args.batch = 1;
  args.slots = slots.data();
  const auto launch = [&] {
    emulator::Launch({1, contract::kWriterThreads, 0, 1}, [&] { kernels::AppendSlots(args); });
  };
  launch();
  EXPECT_EQ(slots, (std::vector<i64>{contract::kAbsentSlot, contract::kAbsentSlot}));
  slots = {5, 5};
  args.batch = 0;
  launch();
  EXPECT_EQ(slots, (std::vector<i64>{5, 5}));
}

}  // namespace
}  // namespace kvilt
