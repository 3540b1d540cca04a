#include "cli/bench_ceiling.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace kvilt::cli {
namespace {

constexpr std::int64_t kLineBytes = 64;
// Far enough for DRAM latency at the rate of one core; 512 B to 4 KiB measured alike on the 2-core
// Sapphire Rapids class machine of 2026-11-30.
constexpr std::int64_t kPrefetchBytes = 2048;
// One pass takes at least this long, so that starting threads does not count.
constexpr double kPassSeconds = 0.02;

// A mapping in huge pages where the system gives them. Not copyable.
class ReadBuffer {
 public:
  explicit ReadBuffer(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(memory);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes_);
  }
  ~ReadBuffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  std::span<const std::byte> bytes() const { return {data_, data_ == nullptr ? 0 : bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// The vector extension of GCC and clang: 16 bytes are in every baseline, and four loads a line are
// faster than any memory below L2.
using Vector = std::uint64_t __attribute__((vector_size(16)));

// The sum of all 8-byte words. REQUIRES: whole lines, aligned.
std::uint64_t ReadAll(const std::byte* data, std::int64_t bytes) {
  Vector a = {}, b = {}, c = {}, d = {};
  for (std::int64_t i = 0; i < bytes; i += kLineBytes) {
    __builtin_prefetch(data + i + kPrefetchBytes);  // Past the end is harmless.
    const auto* words = reinterpret_cast<const Vector*>(data + i);
    a += words[0];
    b += words[1];
    c += words[2];
    d += words[3];
  }
  const Vector sum = a + b + c + d;
  return sum[0] + sum[1];
}

// Seconds in which every thread reads its share `repeats` times, all starting together.
double TimedPass(std::span<const std::byte> buffer, int threads, std::int64_t repeats) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t share =
      static_cast<std::int64_t>(buffer.size()) / threads / kLineBytes * kLineBytes;
  std::atomic<int> waiting{threads};
  std::atomic<std::uint64_t> sink{0};
  std::vector<Clock::time_point> begin(static_cast<std::size_t>(threads)), end(begin);
  const auto work = [&](int t) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    begin[static_cast<std::size_t>(t)] = Clock::now();
    std::uint64_t sum = 0;
    for (std::int64_t r = 0; r < repeats; ++r) sum += ReadAll(buffer.data() + t * share, share);
    end[static_cast<std::size_t>(t)] = Clock::now();
    sink.fetch_add(sum);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  const auto first = *std::min_element(begin.begin(), begin.end());
  return std::chrono::duration<double>(*std::max_element(end.begin(), end.end()) - first).count();
}

}  // namespace

double ReadCeilingGbPerS(std::int64_t bytes, int threads, double seconds) {
  threads = std::max(threads, 1);
  bytes = std::max<std::int64_t>(bytes, std::int64_t{64} * 1024 * threads);
  const ReadBuffer buffer(bytes);
  if (buffer.bytes().empty()) return 0;
  const std::int64_t read_bytes = bytes / threads / kLineBytes * kLineBytes * threads;
  const double once = TimedPass(buffer.bytes(), threads, 1);
  const auto repeats = static_cast<std::int64_t>(kPassSeconds / std::max(once, 1e-6)) + 1;
  double best = once;
  double spent = 0;
  for (int pass = 0; pass < 3 || spent < seconds; ++pass) {
    const double pass_seconds = TimedPass(buffer.bytes(), threads, repeats);
    spent += pass_seconds;
    best = std::min(best, pass_seconds / static_cast<double>(repeats));
  }
  return static_cast<double>(read_bytes) / best * 1e-9;
}

}  // namespace kvilt::cli
