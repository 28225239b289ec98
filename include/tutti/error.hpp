// Results as exceptions: part of tutti/tutti.hpp.
#pragma once

#include <nccl.h>

#include <stdexcept>
#include <string>

namespace tutti {
inline namespace v0 {

// A call's result that is neither success nor "in progress", with the library's text.
class Error : public std::runtime_error {
 public:
  Error(ncclResult_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

// Throws Error for anything but ncclSuccess and ncclInProgress. Returns whether the call is
// finished.
inline bool check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return true;
  if (result == ncclInProgress) return false;
  const std::string name = call;
  const std::string text = ncclGetLastError(nullptr);
  throw Error(result, (text.rfind(name, 0) == 0 ? text : name + ": " + text) + " [" +
                          ncclGetErrorString(result) + "]");
}

}  // namespace v0
}  // namespace tutti
