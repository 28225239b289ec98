#include "base/callers.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace tutti {
namespace {

constexpr int kMostFrames = 64;
constexpr int kShown = 6;
constexpr size_t kMostNameBytes = 60;

struct Frame {
  uintptr_t address = 0;
  Dl_info info{};  // of no module: all null
};

Frame frameAt(void* returnAddress) {
  // The call itself lies before the place that it returns to, which may be another function's.
  Frame frame{.address = reinterpret_cast<uintptr_t>(returnAddress) - 1};
  if (::dladdr(reinterpret_cast<void*>(frame.address), &frame.info) == 0) frame.info = {};
  return frame;
}

const void* moduleOfThis() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(&describeCallers), &info) != 0 ? info.dli_fbase
                                                                               : nullptr;
}

std::string readable(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  std::string text = name != nullptr ? name.get() : symbol;
  if (text.size() > kMostNameBytes) text.replace(kMostNameBytes, std::string::npos, "...");
  return text;
}

std::string describe(const Frame& frame) {
  if (frame.info.dli_fname == nullptr) return fmt::format("{:#x}", frame.address);
  std::string_view module = frame.info.dli_fname;
  module.remove_prefix(module.rfind('/') + 1);
  const uintptr_t base = reinterpret_cast<uintptr_t>(frame.info.dli_fbase);
  if (frame.info.dli_sname == nullptr)
    return fmt::format("{}(+{:#x})", module, frame.address - base);
  const uintptr_t start = reinterpret_cast<uintptr_t>(frame.info.dli_saddr);
  return fmt::format("{}({}+{:#x})", module, readable(frame.info.dli_sname), frame.address - start);
}

// What the program calls it: pncclBroadcast is the same function.
std::string_view exportedName(const Frame& frame) {
  std::string_view name = frame.info.dli_sname != nullptr ? frame.info.dli_sname : "a call";
  if (name.starts_with("pnccl")) name.remove_prefix(1);
  return name;
}

}  // namespace

std::string describeCallers() {
  std::array<void*, kMostFrames> addresses{};
  const int count = ::backtrace(addresses.data(), kMostFrames);
  const void* own = moduleOfThis();
  const auto isOwn = [&](int i) {
    return frameAt(addresses[static_cast<size_t>(i)]).info.dli_fbase == own;
  };
  int first = 0;
  while (first < count && !isOwn(first)) ++first;  // whose backtrace() it is: a sanitizer's
  while (first < count && isOwn(first)) ++first;
  if (first == count) return {};  // the library is a part of the program: nothing tells them apart
  std::string text(exportedName(frameAt(addresses[static_cast<size_t>(first - 1)])));
  for (int i = first; i < count && i < first + kShown; ++i) {
    text += i == first ? ", called from " : " < ";
    text += describe(frameAt(addresses[static_cast<size_t>(i)]));
  }
  return text;
}

}  // namespace tutti
