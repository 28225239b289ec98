// A shared library that is used where it is there, and never unloaded.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti {

// The file that the loader would take for a bare name by these folders ("/a:/b", LD_LIBRARY_PATH),
// if anybody may write to it or to its folder, and so have put there what then runs in this
// process; empty: it would take another, or none. Names with a slash are the user's word.
std::string openToAll(std::string_view file, std::string_view folders);
// By this process's LD_LIBRARY_PATH.
std::string openToAll(std::string_view file);

class SharedLibrary {
 public:
  // "no libfabric: cannot open ..." where it cannot be loaded, or is openToAll().
  static Result<SharedLibrary> open(const std::string& file, std::string_view name);

  // Null where the library has no such symbol.
  template <typename Function>
  void find(Function*& function, const char* symbol) {
    void* address = addressOf(symbol);
    static_assert(sizeof function == sizeof address);
    std::memcpy(&function, &address, sizeof function);
  }
  // The last symbol that was not found; null when all were.
  const char* missing() const { return missing_; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* addressOf(const char* symbol);

  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace tutti
