// Files: mapped for reading, written aside and renamed into place.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kvilt/status.h"

namespace kvilt::core {

// A regular file mapped read-only. Movable; the bytes stay where they are for the life of the
// object. A file that another process truncates while it is mapped raises SIGBUS, as for any
// mapping.
class MappedFile {
 public:
  // Errors: kRuntime (missing, unreadable, not a regular file), naming the path.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Writes the parts one after another to a new file beside `path` and renames it there, so that a
// reader sees the old file or the whole new one. The mode of an existing file is kept. Symbolic
// links are followed: the file they lead to is replaced, the links stay. A pipe or a device is
// written through and stays what it is; opening a pipe waits for its reader.
// Errors: kRuntime, naming the path.
Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts);

// Whether WriteFile can be expected to work, found out before the work whose result it is to hold:
// `path` is no folder, may be written, and its folder takes new files. Creates nothing.
// Errors: kRuntime, naming the path.
Status CheckWritable(const std::string& path);

// Whether writing one path would replace the regular file at the other: links, hard ones too, lead
// to the same file, or neither exists and both name the same place.
bool SameFile(const std::string& a, const std::string& b);

}  // namespace kvilt::core
