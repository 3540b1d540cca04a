#include "src/cuda/cubin_cache.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/core/env.h"
#include "src/core/file.h"
#include "src/core/log.h"
#include "src/cuda/cubin_record.h"

namespace kvilt::cuda {
namespace {

namespace fs = std::filesystem;
using core::EnvVariable;
using core::ReadEnv;

constexpr const char* kSuffix = ".cubin";
// Files of writers that died; a live one takes milliseconds.
constexpr auto kStaleAfter = std::chrono::hours(1);

void Log(const std::string& text) {
  if (core::LogEnabled()) core::LogLine("kernel cache: " + text);
}

std::string FolderOfEnvironment() {
  if (const auto folder = ReadEnv(EnvVariable::kCacheDir)) return *folder;
  const auto xdg = ReadEnv(EnvVariable::kXdgCacheHome);
  if (xdg && !xdg->empty()) return *xdg + "/kvilt";
  const auto home = ReadEnv(EnvVariable::kHome);
  return home && !home->empty() ? *home + "/.cache/kvilt" : "";
}

std::int64_t LimitOfEnvironment() {
  const auto text = ReadEnv(EnvVariable::kCacheBytes);
  if (!text) return CubinCache::kDefaultLimitBytes;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error == std::errc() && end == text->data() + text->size() && value >= 0) return value;
  core::LogLine("KVILT_CACHE_BYTES is \"" + *text + "\"; accepted: a number of bytes, 0 for none");
  return CubinCache::kDefaultLimitBytes;
}

// Read, not mapped: another program may cut a file of the cache short at any time.
std::vector<std::byte> ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct CachedFile {
  fs::path path;
  std::int64_t bytes;
  fs::file_time_type used;
};

// The cache's files; leftovers of writers that died are removed on the way.
std::vector<CachedFile> FilesOf(const std::string& folder) {
  std::vector<CachedFile> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;  // Another process may remove it meanwhile.
    const auto bytes = at->file_size(gone);
    if (gone) continue;
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    const fs::path& path = at->path();
    if (path.extension() == kSuffix) {
      files.push_back({path, static_cast<std::int64_t>(bytes), used});
    } else if (path.stem().extension() == kSuffix &&
               fs::file_time_type::clock::now() - used > kStaleAfter) {
      fs::remove(path, gone);
    }
  }
  return files;
}

}  // namespace

CubinCache CubinCache::FromEnvironment() {
  return CubinCache(FolderOfEnvironment(), LimitOfEnvironment());
}

std::string CubinCache::PathOf(core::Hash128 key) const {
  return folder_ + "/" + core::Hex(key) + kSuffix;
}

std::optional<Cubin> CubinCache::Find(core::Hash128 key) const {
  if (!enabled()) return std::nullopt;
  const std::string path = PathOf(key);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const std::vector<std::byte> bytes = ReadBytes(path);
  std::span<const std::byte> rest = bytes;
  std::optional<CubinRecord> record = ReadRecord(rest);
  if (!record || record->key != key || !rest.empty()) {
    Log(path + " is damaged: compiling again");
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // Used now.
  return std::move(record->cubin);
}

void CubinCache::Store(core::Hash128 key, const Cubin& cubin) const {
  if (!enabled()) return;
  std::vector<std::byte> bytes;
  AppendRecord(key, cubin, bytes);
  if (static_cast<std::int64_t>(bytes.size()) > limit_bytes_) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::span<const std::byte> parts[] = {bytes};
  if (const Status status = core::WriteFile(PathOf(key), parts); !status.ok()) {
    Log(status.message());
    return;
  }
  Evict();
}

void CubinCache::Evict() const {
  std::vector<CachedFile> files = FilesOf(folder_);
  std::int64_t total_bytes = 0;
  for (const CachedFile& file : files) total_bytes += file.bytes;
  if (total_bytes <= limit_bytes_) return;
  std::ranges::sort(files, {}, &CachedFile::used);
  for (const CachedFile& file : files) {
    if (total_bytes <= limit_bytes_) return;
    std::error_code error;
    fs::remove(file.path, error);
    if (!error) total_bytes -= file.bytes;
  }
}

}  // namespace kvilt::cuda
