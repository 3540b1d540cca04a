// Rows of f32, bf16 or f16 elements to f32 and back: the formats that callers hand in and get out.
#pragma once

#include "src/contract/attention_params.h"

namespace kvilt::cpu {

// row[i] = source[i] as f32, exactly. REQUIRES format kF32, kBF16 or kF16. No alignment needed.
void LoadRow(const contract::u8* source, contract::Format format, int count, float* row);

// target[i] = row[i], rounded to nearest even. REQUIRES as LoadRow.
void StoreRow(const float* row, contract::Format format, int count, contract::u8* target);

}  // namespace kvilt::cpu
