#include "src/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvilt::core {
namespace {

Status SystemError(const std::string& path, const char* what, int error) {
  return Status::Runtime(path, std::string(what) + ": " + std::strerror(error));
}

Status WriteAll(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(path, "cannot write", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status::Ok();
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return SystemError(path, "cannot open", errno);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    const int error = errno;
    ::close(descriptor);
    return SystemError(path, "cannot stat", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(descriptor);
    return Status::Runtime(path, "not a regular file");
  }
  MappedFile file;
  file.size_bytes_ = static_cast<std::size_t>(info.st_size);
  if (file.size_bytes_ > 0) {
    void* data = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    if (data == MAP_FAILED) {
      file.size_bytes_ = 0;
      return SystemError(path, "cannot map", error);
    }
    file.data_ = static_cast<const std::byte*>(data);
  } else {
    ::close(descriptor);
  }
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  std::string aside = path + ".XXXXXX";
  const int descriptor = ::mkstemp(aside.data());
  if (descriptor < 0) return SystemError(path, "cannot create a file beside it", errno);
  Status status;
  for (const std::span<const std::byte> part : parts) {
    status = WriteAll(descriptor, part, path);
    if (!status.ok()) break;
  }
  // mkstemp gives 0600; an ordinary file follows the umask, which can only be read by setting it.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (status.ok() && ::fchmod(descriptor, 0666 & ~mask) != 0) {
    status = SystemError(path, "cannot set the mode", errno);
  }
  if (::close(descriptor) != 0 && status.ok()) status = SystemError(path, "cannot close", errno);
  if (status.ok() && ::rename(aside.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "cannot rename into place", errno);
  }
  if (!status.ok()) ::unlink(aside.c_str());
  return status;
}

}  // namespace kvilt::core
