// A shared library that is used where it is there, and never unloaded.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti {

class SharedLibrary {
 public:
  // "no libfabric: cannot open ..." where it cannot be loaded.
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
