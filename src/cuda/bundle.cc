#include "src/cuda/bundle.h"

#include <cstring>
#include <vector>

#include "src/core/file.h"
#include "src/cuda/cubin_record.h"

namespace kvilt::cuda {
namespace {

constexpr char kMagic[8] = {'K', 'V', 'I', 'L', 'T', 'B', 'N', '1'};
constexpr std::size_t kHeadBytes = sizeof(kMagic) + sizeof(std::uint64_t);

}  // namespace

Result<Bundle> ReadBundle(const std::string& path) {
  Result<core::MappedFile> file = core::MappedFile::Open(path);
  if (!file.ok()) return file.status();
  std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return Status::Runtime(path, "not a bundle of kernels, as `kvilt warm` writes them");
  }
  std::uint64_t count = 0;
  std::memcpy(&count, bytes.data() + sizeof(kMagic), sizeof(count));
  bytes = bytes.subspan(kHeadBytes);
  Bundle bundle;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::optional<CubinRecord> record = ReadRecord(bytes);
    if (!record) {
      return Status::Runtime(path, "damaged at kernel " + std::to_string(i) + " of " +
                                       std::to_string(count) + "; write it again");
    }
    bundle[record->key] = std::make_shared<const Cubin>(std::move(record->cubin));
  }
  if (!bytes.empty()) return Status::Runtime(path, "has bytes after its last kernel");
  return bundle;
}

Status WriteBundle(const std::string& path, const Bundle& bundle) {
  std::vector<std::byte> bytes(kHeadBytes);
  const std::uint64_t count = bundle.size();
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  std::memcpy(bytes.data() + sizeof(kMagic), &count, sizeof(count));
  for (const auto& [key, cubin] : bundle) AppendRecord(key, *cubin, bytes);
  const std::span<const std::byte> parts[] = {bytes};
  return core::WriteFile(path, parts);
}

}  // namespace kvilt::cuda
