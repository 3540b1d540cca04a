#include "src/cpu/avx512/body.h"

namespace kvilt::cpu::avx512 {

const AttentionBody* Body() { return nullptr; }

}  // namespace kvilt::cpu::avx512
