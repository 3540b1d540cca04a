// KVILT_UNROLL: unrolls the next loop, whose trip count is a small constant. GCC at -O2 does not do
// it by itself, and accumulators that a running index selects then live in memory.
#pragma once

#if defined(__clang__)
#define KVILT_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define KVILT_UNROLL _Pragma("GCC unroll 16")
#else
#define KVILT_UNROLL
#endif
