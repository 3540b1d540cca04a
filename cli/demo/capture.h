// The real capture that the demo runs on: safetensors files in the schema of docs/formats.md, one a
// layer, with a needle (data/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/core/cache_file.h"
#include "src/core/query_file.h"

namespace kvilt::cli::demo {

// A query and head that puts its attention on one distant key.
struct Needle {
  std::int64_t query_row = 0;
  std::int64_t q_head = 0;
  std::int64_t position = 0;
  double mass = 0;  // Float64 on the stored values, by the script that made the capture.
  std::string query_text;
  std::string key_text;
};

// One layer. Movable; everything borrows from `file`.
struct Capture {
  core::CacheFile file;  // Ragged bf16 NHD, one request.
  core::QueryFile query;
  std::int64_t layer = 0;
  std::string model;
  std::string text;
  Needle needle;

  const TensorView& k() const { return file.segment.k().data; }  // [tokens, kv_heads, head_dim]
  const TensorView& v() const { return file.segment.v().data; }
  std::int64_t tokens() const { return k().shape[0]; }
  std::int64_t kv_heads() const { return k().shape[1]; }
  std::int64_t head_dim() const { return k().shape[2]; }
  std::int64_t queries() const { return query.request.q.shape[0]; }
  std::int64_t q_heads() const { return query.request.q.shape[1]; }
};

// All captures in a folder, by name. Errors: kRuntime when the folder or its files cannot be read,
// kInvalidArgument when a file is no capture; the message says what was expected.
Result<std::vector<Capture>> LoadCaptures(const std::string& folder);

// `wanted` when not empty, else the command's own data: the installed folder, or the source tree's.
// Only where neither exists ./data, which may be anybody's.
std::string CaptureFolder(const std::string& wanted);

}  // namespace kvilt::cli::demo
