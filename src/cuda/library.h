// Shared libraries opened at run time. Never closed: what came from them may be in use until exit.
#pragma once

#include <string>

#include "kvilt/status.h"

namespace kvilt::cuda {

class Library {
 public:
  // `path`: a file, or a name that the loader looks up. Errors: kUnsupported, the loader's text.
  static Result<Library> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Null when the library has no such symbol.
  void* Find(const char* symbol) const;

 private:
  Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

}  // namespace kvilt::cuda
