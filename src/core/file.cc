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

}  // namespace kvilt::core
