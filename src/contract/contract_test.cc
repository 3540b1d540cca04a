#include <gtest/gtest.h>

#include "src/contract/attention_params.h"
#include "src/contract/softmax.h"
#include "src/contract/visibility.h"
#include "src/contract/work_item.h"

namespace kvilt::contract {
namespace {

TEST(Visibility, CausalRowSeesItsPrefix) {
  const Visibility causal{static_cast<i32>(Mask::kCausal), -1, -1};
  EXPECT_EQ(VisibleKeys(causal, 0, 3, 10, 7).end, 8);
  EXPECT_EQ(VisibleKeys(causal, 2, 3, 10, 9).end, 10);
  EXPECT_TRUE(VisibleKeys(causal, 0, 5, 2, -3).empty());
}

}  // namespace
}  // namespace kvilt::contract
