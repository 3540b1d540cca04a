// For tests: how often the program has asked for heap memory through operator new.
#pragma once

namespace kvilt::api::test {

// Since the program began. Linking allocation_count.cc replaces operator new.
long AllocationCount();

}  // namespace kvilt::api::test
