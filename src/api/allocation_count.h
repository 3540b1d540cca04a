// For tests: how often the program has asked for heap memory through operator new.
#pragma once

namespace kvilt::api::test {

// Since the program began. Linking allocation_count.cc replaces operator new.
long AllocationCount();
long AllocatedBytes();  // All that was ever asked for, freed or not.

// One allocation fails: the next one, or so many later.
void FailAllocation(long later);
// Whether it has come to that; if not, it no longer will.
bool AllocationFailed();

}  // namespace kvilt::api::test
