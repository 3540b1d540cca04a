#include "test/kernels/emulated_prefill.h"

namespace kvilt::test {
namespace {

//       K  V  rows keys  qk   vo  stages kv vo copy parts
const AddTiles<
    TileText{5, 5, 16, 64, 64, 64, 3, 4, 1, 1}, TileText{5, 5, 64, 32, 64, 64, 2, 1, 1, 1},
    TileText{5, 5, 128, 64, 64, 64, 1, 1, 1, 1}, TileText{5, 5, 16, 32, 128, 128, 2, 2, 2, 16},
    TileText{5, 5, 16, 32, 64, 64, 2, 2, 1, 1, 2, 2},
    TileText{5, 5, 64, 32, 64, 64, 2, 1, 1, 1, 2, 2}>
    kAdded;

}  // namespace
}  // namespace kvilt::test
