#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "src/core/check.h"
#include "src/core/file.h"

namespace kvilt::core {
namespace {

namespace fs = std::filesystem;

Status SystemError(const std::string& path, const char* what, int error) {
  return Status::Runtime(path, std::string(what) + ": " + std::strerror(error));
}

// What lies at the end of the path, links followed; nothing when there is none.
std::optional<struct stat> Stat(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return info;
}

// The path behind symbolic links, whether it exists or not.
std::string Target(const std::string& path) {
  constexpr int kMaxLinks = 40;  // As Linux has it.
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) return path;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target.string();
}

std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status WriteAll(int descriptor, std::span<const std::span<const std::byte>> parts,
                const std::string& path) {
  for (std::span<const std::byte> bytes : parts) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return SystemError(path, "cannot write", errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  return Status::Ok();
}

// Pipes and devices take the bytes as they come; nothing there can be replaced.
Status WriteThrough(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return SystemError(path, "cannot open for writing", errno);
  Status status = WriteAll(descriptor, parts, path);
  if (::close(descriptor) != 0 && status.ok()) status = SystemError(path, "cannot close", errno);
  return status;
}

// mkstemp gives 0600; an ordinary new file follows the umask, which can only be read by setting it.
mode_t ModeOf(const std::optional<struct stat>& existing) {
  if (existing) return existing->st_mode & 0777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Status CheckWritable(const std::string& path) {
  if (path.empty()) return Status::Runtime("file", "the name is empty");
  const auto existing = Stat(path);
  if (existing && S_ISDIR(existing->st_mode)) {
    return Status::Runtime(path, "is a folder, expected a file");
  }
  if (existing && ::access(path.c_str(), W_OK) != 0) {
    return SystemError(path, "cannot write", errno);
  }
  if (existing && !S_ISREG(existing->st_mode)) return Status::Ok();
  const std::string folder = FolderOf(Target(path));
  const auto holder = Stat(folder);
  if (!holder) return SystemError(path, "cannot create: no such folder", errno);
  if (!S_ISDIR(holder->st_mode)) return SystemError(path, "cannot create", ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return SystemError(path, "cannot create a file beside it", errno);
  }
  return Status::Ok();
}

bool SameFile(const std::string& a, const std::string& b) {
  const auto at_a = Stat(a);
  const auto at_b = Stat(b);
  if (at_a && at_b) {
    return S_ISREG(at_a->st_mode) && at_a->st_dev == at_b->st_dev && at_a->st_ino == at_b->st_ino;
  }
  if (at_a || at_b) return false;
  std::error_code error;
  const fs::path path_a = fs::weakly_canonical(Target(a), error);
  const fs::path path_b = fs::weakly_canonical(Target(b), error);
  return !error && path_a == path_b;
}

Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  KVILT_RETURN_IF_ERROR(CheckWritable(path));
  const auto existing = Stat(path);
  if (existing && !S_ISREG(existing->st_mode)) return WriteThrough(path, parts);
  const std::string target = Target(path);
  std::string aside = target + ".XXXXXX";
  const int descriptor = ::mkstemp(aside.data());
  if (descriptor < 0) return SystemError(path, "cannot create a file beside it", errno);
  Status status = WriteAll(descriptor, parts, path);
  if (status.ok() && ::fchmod(descriptor, ModeOf(existing)) != 0) {
    status = SystemError(path, "cannot set the mode", errno);
  }
  if (::close(descriptor) != 0 && status.ok()) status = SystemError(path, "cannot close", errno);
  if (status.ok() && ::rename(aside.c_str(), target.c_str()) != 0) {
    status = SystemError(path, "cannot rename into place", errno);
  }
  if (!status.ok()) ::unlink(aside.c_str());
  return status;
}

}  // namespace kvilt::core
