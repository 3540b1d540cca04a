// The matrix functions of a warp on its register files, [register][lane].
#pragma once

#include "src/contract/types.h"

namespace kvilt::emulator {

// d += a b with in[0..3] = a, in[4..5] = b; layouts in src/kernels/simt_ptx.cuh.
void MultiplyAddF16(float (&d)[4][32], const contract::u32 (&in)[6][32]);
void MultiplyAddBF16(float (&d)[4][32], const contract::u32 (&in)[6][32]);

// rows[8i + r]: 16 bytes, row r of matrix i.
void LoadRows(contract::u32 (&out)[4][32], const void* const (&rows)[32]);
void LoadRowsTransposed(contract::u32 (&out)[4][32], const void* const (&rows)[32]);
void Transpose(contract::u32 (&out)[32], const contract::u32 (&in)[32]);

}  // namespace kvilt::emulator
