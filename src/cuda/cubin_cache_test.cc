#include "src/cuda/cubin_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "src/cuda/bundle.h"
#include "src/cuda/cubin_record.h"
#include "src/cuda/temporary_folder_fixture.h"

namespace kvilt::cuda {
namespace {

namespace fs = std::filesystem;

Cubin SomeCubin(int seed, std::size_t bytes = 100) {
  Cubin cubin;
  cubin.stats = {.registers = seed,
                 .spill_bytes = 1,
                 .stack_bytes = 2,
                 .args_bytes = 3,
                 .smem_bytes = 4,
                 .compile_seconds = 0.5};
  cubin.log = "ptxas info";
  for (std::size_t i = 0; i < bytes; ++i) cubin.image.push_back(static_cast<std::byte>(seed + i));
  return cubin;
}

fs::path OnlyFile(const std::string& folder) { return fs::directory_iterator(folder)->path(); }
auto FileCount(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(CubinRecord, ComesBackWhole) {
  std::vector<std::byte> bytes;
  AppendRecord({1, 2}, SomeCubin(7), bytes);
  AppendRecord({3, 4}, SomeCubin(8, 0), bytes);
  std::span<const std::byte> rest = bytes;
  const auto first = ReadRecord(rest);
  const auto second = ReadRecord(rest);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->key, (core::Hash128{1, 2}));
  EXPECT_EQ(first->cubin, SomeCubin(7));
  EXPECT_EQ(second->cubin, SomeCubin(8, 0));
  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(ReadRecord(rest));
}

TEST(CubinRecord, CutShortOrChangedAnywhereIsNotRead) {
  std::vector<std::byte> bytes;
  AppendRecord({1, 2}, SomeCubin(7), bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::span<const std::byte> cut = std::span(bytes).first(i);
    EXPECT_FALSE(ReadRecord(cut)) << i;
    bytes[i] ^= std::byte{0x10};
    std::span<const std::byte> changed = bytes;
    EXPECT_FALSE(ReadRecord(changed)) << i;
    bytes[i] ^= std::byte{0x10};
  }
}

TEST(CubinCache, FindsWhatWasStored) {
  const TemporaryFolder folder;
  const CubinCache cache(folder.File("made/when/needed"), 1 << 20);
  EXPECT_FALSE(cache.Find({1, 2}));
  cache.Store({1, 2}, SomeCubin(7));
  EXPECT_EQ(cache.Find({1, 2}), SomeCubin(7));
  EXPECT_FALSE(cache.Find({2, 1}));
  EXPECT_EQ(FileCount(cache.folder()), 1);  // No file is left aside.
}

TEST(CubinCache, DamagedFilesAreNotLoadedAndAreReplaced) {
  const TemporaryFolder folder;
  const CubinCache cache(folder.path(), 1 << 20);
  cache.Store({1, 2}, SomeCubin(7));
  const fs::path file = OnlyFile(folder.path());
  const std::string whole = ReadAll(file);
  std::string changed = whole;
  changed.back() ^= 1;
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), changed, whole + "x"}) {
    WriteAll(file, damaged);
    EXPECT_FALSE(cache.Find({1, 2}));
    cache.Store({1, 2}, SomeCubin(7));
    EXPECT_EQ(cache.Find({1, 2}), SomeCubin(7));
  }
  // Another kernel's file under this name.
  std::vector<std::byte> other;
  AppendRecord({5, 6}, SomeCubin(8), other);
  WriteAll(file, {reinterpret_cast<const char*>(other.data()), other.size()});
  EXPECT_FALSE(cache.Find({1, 2}));
}

TEST(CubinCache, TheLimitHoldsAndTheLongestUnusedGoFirst) {
  const TemporaryFolder folder;
  const CubinCache cache(folder.path(), 5000);
  const auto key = [](int i) { return core::Hash128{0, static_cast<std::uint64_t>(i)}; };
  const auto path = [&](int i) { return folder.File(core::Hex(key(i)) + ".cubin"); };
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 4; ++i) {
    cache.Store(key(i), SomeCubin(i, 1000));
    fs::last_write_time(path(i), now - std::chrono::minutes(60 - i));
  }
  ASSERT_TRUE(cache.Find(key(0)));  // Used now: no longer the oldest.
  cache.Store(key(4), SomeCubin(4, 1000));
  EXPECT_EQ(FileCount(folder.path()), 4);
  EXPECT_FALSE(cache.Find(key(1)));
  for (const int i : {0, 2, 3, 4}) EXPECT_TRUE(cache.Find(key(i))) << i;
  cache.Store(key(5), SomeCubin(5, 6000));  // Alone past the limit.
  EXPECT_EQ(FileCount(folder.path()), 4);
}

TEST(CubinCache, FilesOfWritersThatDiedAreRemoved) {
  const TemporaryFolder folder;
  const CubinCache cache(folder.path(), 1 << 20);
  const std::string old = folder.File("0123.cubin.abcdef");
  const std::string young = folder.File("0123.cubin.ghijkl");
  const std::string foreign = folder.File("notes.txt");
  for (const std::string& file : {old, young, foreign}) WriteAll(file, "half");
  for (const std::string& file : {old, foreign}) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  cache.Store({1, 2}, SomeCubin(7));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST(CubinCache, PlacesThatKeepNothing) {
  const TemporaryFolder folder;
  WriteAll(folder.File("file"), "");
  for (const CubinCache& cache :
       {CubinCache("", 1 << 20), CubinCache(folder.File("none"), 0),
        CubinCache(folder.File("file"), 1 << 20), CubinCache("/proc/no/such", 1 << 20)}) {
    cache.Store({1, 2}, SomeCubin(7));
    EXPECT_FALSE(cache.Find({1, 2}));
  }
  EXPECT_FALSE(fs::exists(folder.File("none")));
}

// Publishes and reads one key again and again: what is found must be whole.
bool PublishAndRead(const CubinCache& cache, int rounds) {
  bool whole = true;
  for (int i = 0; i < rounds; ++i) {
    cache.Store({1, 2}, SomeCubin(7, 50000));
    const auto found = cache.Find({1, 2});
    whole = whole && found == SomeCubin(7, 50000);
  }
  return whole;
}

TEST(CubinCache, ThreadsAndProcessesMayStoreTheSameKernel) {
  const TemporaryFolder folder;
  const CubinCache cache(folder.path(), 1 << 20);
  constexpr int kRounds = 30;
  pid_t children[2];
  for (pid_t& child : children) {
    child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(PublishAndRead(cache, kRounds) ? 0 : 1);
  }
  bool other = false;
  std::thread thread([&] { other = PublishAndRead(cache, kRounds); });
  EXPECT_TRUE(PublishAndRead(cache, kRounds));
  thread.join();
  EXPECT_TRUE(other);
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(FileCount(folder.path()), 1);
}

TEST(CubinCache, TheEnvironmentNamesFolderAndLimit) {
  const auto set = [](const char* name, const char* value) {
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  set("HOME", "/home/someone");
  set("XDG_CACHE_HOME", nullptr);
  set("KVILT_CACHE_DIR", nullptr);
  set("KVILT_CACHE_BYTES", nullptr);
  EXPECT_EQ(CubinCache::FromEnvironment().folder(), "/home/someone/.cache/kvilt");
  EXPECT_EQ(CubinCache::FromEnvironment().limit_bytes(), CubinCache::kDefaultLimitBytes);
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(CubinCache::FromEnvironment().folder(), "/xdg/kvilt");
  set("KVILT_CACHE_DIR", "/own");
  EXPECT_EQ(CubinCache::FromEnvironment().folder(), "/own");
  set("KVILT_CACHE_DIR", "");
  EXPECT_EQ(CubinCache::FromEnvironment().folder(), "");
  set("KVILT_CACHE_BYTES", "123");
  EXPECT_EQ(CubinCache::FromEnvironment().limit_bytes(), 123);
  set("KVILT_CACHE_BYTES", "12x");
  testing::internal::CaptureStderr();
  EXPECT_EQ(CubinCache::FromEnvironment().limit_bytes(), CubinCache::kDefaultLimitBytes);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("KVILT_CACHE_BYTES is \"12x\""),
            std::string::npos);
}

TEST(Bundle, RoundTripAndDamage) {
  const TemporaryFolder folder;
  const std::string path = folder.File("kernels.bundle");
  Bundle bundle;
  for (int i = 0; i < 3; ++i) {
    bundle[{1, static_cast<std::uint64_t>(i)}] = std::make_shared<const Cubin>(SomeCubin(i));
  }
  ASSERT_TRUE(WriteBundle(path, bundle).ok());
  Result<Bundle> read = ReadBundle(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 3u);
  for (const auto& [key, cubin] : bundle) EXPECT_EQ(*read->at(key), *cubin);

  const std::string whole = ReadAll(path);
  WriteAll(path, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(ReadBundle(path).status().message(),
            path + ": damaged at kernel 2 of 3; write it again");
  WriteAll(path, whole + "x");
  EXPECT_FALSE(ReadBundle(path).ok());
  WriteAll(path, "something else altogether");
  EXPECT_NE(ReadBundle(path).status().message().find("not a bundle"), std::string::npos);
  EXPECT_FALSE(ReadBundle(folder.File("missing")).ok());
}

}  // namespace
}  // namespace kvilt::cuda
