#include "src/core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace kvilt::core {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvilt_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Status WriteText(const std::string& path, std::string_view first, std::string_view second) {
  const std::array<std::span<const std::byte>, 2> parts = {std::as_bytes(std::span(first)),
                                                           std::as_bytes(std::span(second))};
  return WriteFile(path, parts);
}

TEST_F(FileTest, WritesPartsInOrderAndReplacesWhatWasThere) {
  ASSERT_TRUE(WriteText(Path("a"), "a long first version", "").ok());
  ASSERT_TRUE(WriteText(Path("a"), "one,", "two").ok());
  Result<MappedFile> file = MappedFile::Open(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(Text(*file), "one,two");
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, NewFilesFollowTheUmask) {
  const mode_t mask = ::umask(022);
  const Status status = WriteText(Path("a"), "x", "");
  ::umask(mask);
  ASSERT_TRUE(status.ok());
  struct stat info = {};
  ASSERT_EQ(::stat(Path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST_F(FileTest, AnEmptyFileMapsToNoBytes) {
  std::ofstream(Path("empty")).close();
  Result<MappedFile> file = MappedFile::Open(Path("empty"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(FileTest, BytesSurviveAMove) {
  ASSERT_TRUE(WriteText(Path("a"), "kept", "").ok());
  MappedFile file = MappedFile::Open(Path("a")).value();
  MappedFile moved = std::move(file);
  EXPECT_EQ(Text(moved), "kept");
}

TEST_F(FileTest, ErrorsNameThePath) {
  const Result<MappedFile> missing = MappedFile::Open(Path("missing"));
  EXPECT_EQ(missing.status().code(), StatusCode::kRuntime);
  EXPECT_EQ(missing.status().field(), Path("missing"));
  EXPECT_EQ(MappedFile::Open(folder_.string()).status().message(),
            folder_.string() + ": not a regular file");
  EXPECT_EQ(WriteText(Path("no/such/folder"), "x", "").code(), StatusCode::kRuntime);
}

}  // namespace
}  // namespace kvilt::core
