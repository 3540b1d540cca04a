#include "test/kernels/emulated_prefill.h"

namespace kvilt::test {
namespace {

//       K  V  rows keys  qk   vo  stages kv vo copy parts
const AddTiles<
    TileText{1, 1, 16, 64, 64, 64, 2, 4, 1, 1, 2, 1},
    TileText{1, 1, 64, 32, 64, 64, 3, 1, 1, 1, 2, 1}, TileText{3, 1, 32, 32, 80, 48, 2, 2, 1, 1},
    TileText{2, 4, 32, 16, 64, 128, 4, 1, 2, 4}, TileText{-1, -1, 32, 32, 64, 64, 2, 2, 1, 1, 2, 1},
    TileText{1, 5, 16, 32, 64, 64, 2, 2, 1, 1, 2, 2}>
    kAdded;

}  // namespace
}  // namespace kvilt::test
