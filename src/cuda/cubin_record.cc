#include "src/cuda/cubin_record.h"

#include <bit>
#include <cstring>

namespace kvilt::cuda {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr char kMagic[8] = {'K', 'V', 'I', 'L', 'T', 'C', 'B', '1'};

template <class T>
void Put(const T& value, std::vector<std::byte>& bytes) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <class T>
bool Take(std::span<const std::byte>& bytes, T& value) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return true;
}

core::Hash128 HashOf(core::Hash128 key, std::span<const std::byte> payload) {
  return core::Hasher().Add(key.high).Add(key.low).Add(payload).value();
}

std::vector<std::byte> PayloadOf(const Cubin& cubin) {
  std::vector<std::byte> bytes;
  const CubinStats& stats = cubin.stats;
  for (const int value : {stats.registers, stats.spill_bytes, stats.stack_bytes, stats.args_bytes,
                          stats.smem_bytes}) {
    Put(value, bytes);
  }
  Put(stats.compile_seconds, bytes);
  Put(std::uint64_t{cubin.log.size()}, bytes);
  const auto log = std::as_bytes(std::span(cubin.log));
  bytes.insert(bytes.end(), log.begin(), log.end());
  bytes.insert(bytes.end(), cubin.image.begin(), cubin.image.end());
  return bytes;
}

std::optional<Cubin> CubinOf(std::span<const std::byte> payload) {
  Cubin cubin;
  CubinStats& stats = cubin.stats;
  for (int* value : {&stats.registers, &stats.spill_bytes, &stats.stack_bytes, &stats.args_bytes,
                     &stats.smem_bytes}) {
    if (!Take(payload, *value)) return std::nullopt;
  }
  std::uint64_t log_bytes = 0;
  if (!Take(payload, stats.compile_seconds) || !Take(payload, log_bytes)) return std::nullopt;
  if (log_bytes > payload.size()) return std::nullopt;
  const auto log = payload.first(log_bytes);
  const auto image = payload.subspan(log_bytes);
  cubin.log.assign(reinterpret_cast<const char*>(log.data()), log.size());
  cubin.image.assign(image.begin(), image.end());
  return cubin;
}

}  // namespace

void AppendRecord(core::Hash128 key, const Cubin& cubin, std::vector<std::byte>& bytes) {
  const std::vector<std::byte> payload = PayloadOf(cubin);
  const core::Hash128 hash = HashOf(key, payload);
  Put(kMagic, bytes);
  for (const std::uint64_t half : {key.high, key.low, hash.high, hash.low}) Put(half, bytes);
  Put(std::uint64_t{payload.size()}, bytes);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
}

std::optional<CubinRecord> ReadRecord(std::span<const std::byte>& bytes) {
  std::span<const std::byte> rest = bytes;
  char magic[sizeof(kMagic)];
  core::Hash128 key;
  core::Hash128 hash;
  std::uint64_t payload_bytes = 0;
  if (!Take(rest, magic) || std::memcmp(magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  for (std::uint64_t* half : {&key.high, &key.low, &hash.high, &hash.low}) {
    if (!Take(rest, *half)) return std::nullopt;
  }
  if (!Take(rest, payload_bytes) || payload_bytes > rest.size()) return std::nullopt;
  const auto payload = rest.first(payload_bytes);
  if (HashOf(key, payload) != hash) return std::nullopt;
  std::optional<Cubin> cubin = CubinOf(payload);
  if (!cubin) return std::nullopt;
  bytes = rest.subspan(payload_bytes);
  return CubinRecord{key, *std::move(cubin)};
}

}  // namespace kvilt::cuda
