#include "device/cuda/driver.h"

#include <dlfcn.h>

#include <cstring>

namespace tutti::device::cuda {
namespace {

Status unavailable(std::string message) { return Status(Code::kSystemError, std::move(message)); }

}  // namespace

Status Driver::check(DriverResult result, std::string_view call, std::string_view what) const {
  if (result == kSuccess) return {};
  const char* text = nullptr;
  if (errorName == nullptr || errorName(result, &text) != kSuccess || text == nullptr) text = "?";
  return makeError(Code::kUnhandledCudaError,
                   what.empty() ? fmt::format("{}: {} ({})", call, text, result)
                                : fmt::format("{} ({}): {} ({})", call, what, text, result));
}

Result<Driver> loadDriver() {
  // Never closed: the driver's threads and exit handlers stay until the process ends.
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return unavailable(fmt::format("no CUDA driver: {}", reason == nullptr ? "?" : reason));
  }
  Driver driver;
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    void* address = ::dlsym(library, symbol);
    if (address == nullptr) missing = symbol;
    static_assert(sizeof member == sizeof address);
    std::memcpy(&member, &address, sizeof member);
  };
#define TUTTI_CUDA_FIND(member, symbol, parameters) find(driver.member, #symbol);
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (missing != nullptr) {
    return unavailable(
        fmt::format("libcuda.so.1 has no {}: the driver is older than CUDA 12", missing));
  }
  if (const DriverResult result = driver.init(0); result != kSuccess) {
    const char* text = nullptr;
    driver.errorName(result, &text);
    return unavailable(fmt::format("cuInit: {} ({})", text == nullptr ? "?" : text, result));
  }
  return driver;
}

}  // namespace tutti::device::cuda
