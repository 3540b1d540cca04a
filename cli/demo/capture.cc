#include "cli/demo/capture.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/core/check.h"

namespace kvilt::cli::demo {
namespace {

namespace fs = std::filesystem;

Status ReadFacts(Capture& capture) {
  core::MetadataReader reader(capture.file.file.metadata());
  Needle& needle = capture.needle;
  for (const char* key : {"needle.query_row", "needle.q_head", "needle.position", "source.layer"}) {
    if (!reader.Has(key)) {
      return Status::Invalid(std::string("metadata.") + key,
                             "missing; expected a capture made by tools/capture_smollm2.py");
    }
  }
  reader.Read("needle.query_row", needle.query_row);
  reader.Read("needle.q_head", needle.q_head);
  reader.Read("needle.position", needle.position);
  reader.Read("needle.mass", needle.mass);
  reader.Read("source.layer", capture.layer);
  needle.query_text = reader.Text("needle.query_text").value_or("");
  needle.key_text = reader.Text("needle.key_text").value_or("");
  capture.model = reader.Text("source.model").value_or("unnamed model");
  capture.text = reader.Text("source.text").value_or("unnamed text");
  capture.text = capture.text.substr(0, capture.text.find(", /"));  // Without its path.
  return reader.status();
}

// The demo slices, tiles and converts K and V itself, so it takes only the form of the captures.
Status CheckForm(const Capture& capture) {
  const CacheSide& k = capture.file.segment.k();
  const CacheSide& v = capture.file.segment.v();
  for (const CacheSide* side : {&k, &v}) {
    if (capture.file.segment.ragged() == nullptr || side->layout != KvLayout::kNHD ||
        side->data.dtype != DType::kBF16) {
      return Status::Invalid("kvilt.cache", "expected a ragged bf16 cache in NHD order");
    }
  }
  if (k.data.shape[2] != v.data.shape[2] || k.data.shape[2] % kBlockElements != 0) {
    return Status::Invalid("k.data.shape[2]",
                           "expected the head dim of v.data, and a multiple of 16");
  }
  const Needle& needle = capture.needle;
  if (needle.query_row < 0 || needle.query_row >= capture.queries() || needle.q_head < 0 ||
      needle.q_head >= capture.q_heads() || needle.position < 0 ||
      needle.position >= capture.tokens()) {
    return Status::Invalid("needle", "query_row, q_head or position lies outside the capture");
  }
  if (capture.query.request.q_indptr.size != 2) {
    return Status::Invalid("q_indptr", "expected one request");
  }
  return Status::Ok();
}

Result<Capture> LoadCapture(const std::string& path) {
  Result<core::CacheFile> file = core::LoadCacheFile(path);
  if (!file.ok()) return file.status();
  Result<core::QueryFile> query = core::QueryOf(file->file);
  if (!query.ok()) return query.status();
  Capture capture{std::move(file).value(), std::move(query).value(), 0, {}, {}, {}};
  KVILT_RETURN_IF_ERROR(ReadFacts(capture));
  KVILT_RETURN_IF_ERROR(CheckForm(capture));
  return capture;
}

Status SameShape(const std::vector<Capture>& captures) {
  const Capture& first = captures.front();
  for (const Capture& other : captures) {
    if (other.tokens() != first.tokens() || other.kv_heads() != first.kv_heads() ||
        other.head_dim() != first.head_dim() || other.queries() != first.queries() ||
        other.q_heads() != first.q_heads()) {
      return Status::Invalid(other.file.file.path(), "its shapes differ from the other layers'");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<Capture>> LoadCaptures(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  }
  if (paths.empty()) {
    return Status::Runtime(
        folder, error ? error.message() + "; expected a folder of captures (*.safetensors)"
                      : "no *.safetensors; expected the captures of data/README.md");
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Capture> captures;
  for (const std::string& path : paths) {
    Result<Capture> capture = LoadCapture(path);
    if (!capture.ok()) {
      return Status(capture.status().code(), path, capture.status().message());
    }
    captures.push_back(std::move(capture).value());
  }
  KVILT_RETURN_IF_ERROR(SameShape(captures));
  return captures;
}

std::string CaptureFolder(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = self.parent_path().parent_path() / "share" / "kvilt" / "data";
  for (const fs::path& folder : {installed, fs::path(KVILT_SOURCE_DATA)}) {
    if (fs::is_directory(folder, error)) return folder.string();
  }
  return "data";
}

}  // namespace kvilt::cli::demo
