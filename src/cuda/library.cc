#include "src/cuda/library.h"

#include <dlfcn.h>

namespace kvilt::cuda {

Result<Library> Library::Open(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = ::dlerror();
    return Status::Unsupported(path, text != nullptr ? text : "cannot be opened");
  }
  return Library(handle, path);
}

void* Library::Find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace kvilt::cuda
