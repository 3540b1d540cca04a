#include "src/core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

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

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode;
}

TEST_F(FileTest, WritingKeepsTheModeOfWhatWasThere) {
  ASSERT_TRUE(WriteText(Path("a"), "x", "").ok());
  ASSERT_EQ(::chmod(Path("a").c_str(), 0640), 0);
  ASSERT_TRUE(WriteText(Path("a"), "y", "").ok());
  EXPECT_EQ(ModeOf(Path("a")) & 0777, 0640u);
}

TEST_F(FileTest, WritingFollowsLinksAndLeavesThem) {
  std::filesystem::create_directory(Path("folder"));
  ASSERT_TRUE(WriteText(Path("folder/target"), "old", "").ok());
  std::filesystem::create_symlink("folder/target", Path("link"));
  std::filesystem::create_symlink("link", Path("link_to_link"));
  std::filesystem::create_symlink("folder/new", Path("dangling"));
  ASSERT_TRUE(WriteText(Path("link_to_link"), "new", "").ok());
  EXPECT_TRUE(S_ISLNK(ModeOf(Path("link"))));
  EXPECT_TRUE(S_ISLNK(ModeOf(Path("link_to_link"))));
  EXPECT_EQ(Text(MappedFile::Open(Path("folder/target")).value()), "new");
  ASSERT_TRUE(WriteText(Path("dangling"), "made", "").ok());
  EXPECT_TRUE(S_ISLNK(ModeOf(Path("dangling"))));
  EXPECT_EQ(Text(MappedFile::Open(Path("folder/new")).value()), "made");
}

TEST_F(FileTest, APipeIsWrittenThroughAndStaysOne) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { std::getline(std::ifstream(Path("pipe")), read); });
  const Status status = WriteText(Path("pipe"), "one,", "two");
  // A writer that leaves the pipe alone leaves its reader waiting: let it go.
  if (const int out = ::open(Path("pipe").c_str(), O_WRONLY | O_NONBLOCK); out >= 0) ::close(out);
  reader.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read, "one,two");
  EXPECT_TRUE(S_ISFIFO(ModeOf(Path("pipe"))));
}

TEST_F(FileTest, WhatCannotBeWrittenIsKnownBefore) {
  EXPECT_TRUE(CheckWritable(Path("new")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  EXPECT_NE(CheckWritable(Path("no/such/folder")).message().find("no such folder"),
            std::string::npos);
  EXPECT_NE(CheckWritable(folder_.string()).message().find("is a folder"), std::string::npos);
  ASSERT_TRUE(WriteText(Path("a"), "x", "").ok());
  EXPECT_FALSE(CheckWritable(Path("a/b")).ok());
  EXPECT_FALSE(CheckWritable("").ok());
}

TEST_F(FileTest, SameFileSeesThroughLinksAndSpellings) {
  ASSERT_TRUE(WriteText(Path("a"), "x", "").ok());
  ASSERT_TRUE(WriteText(Path("b"), "x", "").ok());
  std::filesystem::create_symlink("a", Path("link"));
  std::filesystem::create_hard_link(Path("a"), Path("hard"));
  std::filesystem::create_symlink("new", Path("dangling"));
  for (const char* other : {"a", "./a", "link", "hard"}) {
    EXPECT_TRUE(SameFile(Path("a"), Path(other))) << other;
  }
  EXPECT_FALSE(SameFile(Path("a"), Path("b")));
  EXPECT_FALSE(SameFile(Path("a"), Path("new")));
  EXPECT_TRUE(SameFile(Path("new"), Path("./new")));
  EXPECT_TRUE(SameFile(Path("dangling"), Path("new")));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(SameFile(Path("pipe"), Path("pipe")));  // Nothing there can be replaced.
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
