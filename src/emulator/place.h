// Where the running thread is: what ThreadIndex() and its kin read.
#pragma once

#include "src/contract/types.h"

namespace kvilt::emulator {

struct Place {
  contract::i32 thread = 0;
  contract::i32 block = 0;
  contract::i32 threads = 0;  // Of a block.
  contract::i32 grid = 0;     // Blocks.
  contract::u8* shared = nullptr;
  contract::i64 shared_bytes = 0;
};

// Of the emulated thread that runs on this OS thread; null outside a launch.
extern constinit thread_local const Place* place;

}  // namespace kvilt::emulator
