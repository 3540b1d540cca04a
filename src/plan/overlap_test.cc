// MayOverlap against the sets of bytes themselves.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "src/plan/tensor_check.h"

namespace kvilt::plan {
namespace {

std::set<const std::uint8_t*> BytesOf(const TensorView& view) {
  std::set<const std::uint8_t*> bytes;
  std::vector<std::int64_t> index(static_cast<std::size_t>(view.rank), 0);
  while (true) {
    std::int64_t offset = 0;
    for (int dim = 0; dim < view.rank; ++dim) {
      offset += index[static_cast<std::size_t>(dim)] * view.stride[dim];
    }
    const int unit = StorageBytes(view.dtype);
    const auto* first = static_cast<const std::uint8_t*>(view.data) + offset * unit;
    for (int byte = 0; byte < unit; ++byte) bytes.insert(first + byte);
    int dim = view.rank - 1;
    while (dim >= 0 && ++index[static_cast<std::size_t>(dim)] == view.shape[dim]) {
      index[static_cast<std::size_t>(dim--)] = 0;
    }
    if (dim < 0) return bytes;
  }
}

bool ReallyOverlap(const TensorView& a, const TensorView& b) {
  const auto of_a = BytesOf(a);
  for (const std::uint8_t* byte : BytesOf(b)) {
    if (of_a.contains(byte)) return true;
  }
  return false;
}

TensorView RandomView(std::vector<std::uint8_t>& memory) {
  TensorView view;
  view.dtype = *rc::gen::element(DType::kU8, DType::kBF16);
  view.rank = *rc::gen::inRange(1, 5);
  for (int dim = 0; dim < view.rank; ++dim) {
    view.shape[dim] = *rc::gen::inRange(1, 4);
    view.stride[dim] = *rc::gen::inRange(0, 25);
  }
  view.stride[view.rank - 1] = 1;
  view.data = memory.data() + 2 * *rc::gen::inRange<std::size_t>(0, 60);
  return view;
}

RC_GTEST_PROP(Overlap, NeverMissesOne, ()) {
  std::vector<std::uint8_t> memory(1024);
  const TensorView a = RandomView(memory);
  const TensorView b = RandomView(memory);
  if (ReallyOverlap(a, b)) RC_ASSERT(MayOverlap(a, b));
  RC_ASSERT(MayOverlap(a, b) == MayOverlap(b, a));
}

// Pools whose parts step alike: [pages, 2, tokens, heads, data | scales].
RC_GTEST_PROP(Overlap, IsExactInPackedPools, ()) {
  std::vector<std::uint8_t> memory(4096);
  const std::int64_t pages = *rc::gen::inRange(1, 4);
  const std::int64_t tokens = *rc::gen::inRange(1, 4);
  const std::int64_t heads = *rc::gen::inRange(1, 4);
  const std::int64_t row = *rc::gen::inRange(2, 12);
  const auto part = [&] {
    const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, row);
    const std::int64_t width = *rc::gen::inRange<std::int64_t>(1, row - begin + 1);
    const std::int64_t half = *rc::gen::inRange<std::int64_t>(0, 2);
    TensorView view = TensorView::Dense(memory.data() + half * tokens * heads * row + begin,
                                        DType::kU8, {pages, tokens, heads, width});
    view.stride[0] = 2 * tokens * heads * row;
    view.stride[1] = heads * row;
    view.stride[2] = row;
    return view;
  };
  const TensorView a = part();
  const TensorView b = part();
  RC_ASSERT(MayOverlap(a, b) == ReallyOverlap(a, b));
}

TEST(Overlap, RowsOfDataAndScalesAreApart) {
  std::vector<std::uint8_t> memory(6 * 4 * 2 * 144);
  TensorView data = TensorView::Dense(memory.data(), DType::kNVFP4, {6, 4, 2, 128});
  TensorView scales = TensorView::Dense(memory.data() + 128, DType::kE4M3, {6, 4, 2, 16});
  for (TensorView* view : {&data, &scales}) {
    view->stride[0] = 4 * 2 * 144;
    view->stride[1] = 2 * 144;
    view->stride[2] = 144;
  }
  EXPECT_FALSE(MayOverlap(data, scales));
  scales.data = memory.data() + 127;
  EXPECT_TRUE(MayOverlap(data, scales));
}

}  // namespace
}  // namespace kvilt::plan
