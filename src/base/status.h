// Errors as values. A Status is one pointer wide; null means success, so the good path allocates
// nothing. An error is made, and logged, once: where it is first known. Callers above pass it on
// unchanged.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "base/located_format.h"

namespace tutti {

// The numbers are those of ncclResult_t, so the C ABI translates by a cast.
enum class Code : uint8_t {
  kOk = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool ok() const { return detail_ == nullptr; }
  Code code() const { return detail_ ? detail_->code : Code::kOk; }
  std::string_view message() const { return detail_ ? std::string_view(detail_->message) : ""; }
  // outOfMemory() when there is none for a copy.
  Status clone() const noexcept;

  // kSystemError, and it takes no memory: for who catches std::bad_alloc.
  static Status outOfMemory() noexcept;

 private:
  struct Detail {
    Code code;
    std::string message;
  };
  struct Free {  // all but the one detail that outOfMemory() shares
    void operator()(Detail* detail) const noexcept;
  };
  static Detail* exhausted() noexcept;
  std::unique_ptr<Detail, Free> detail_;
};

// Either a value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T&& value) : value_(std::move(value)) {}
  Result(const T& value) requires std::copy_constructible<T> : value_(value) {}
  Result(Status&& status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  T* operator->() { return &*value_; }
  Status takeStatus() { return std::move(status_); }
  const Status& status() const { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// What polling finds. It is no error to find nothing.
enum class Progress : uint8_t { kIdle, kAdvanced, kDone };

// Makes the error and logs it at WARN: the one place where a failure is first known calls this.
// The line names the place that is given here, which by default is the caller's.
Status makeError(Code code, std::string message,
                 std::source_location where = std::source_location::current());

template <typename... Args>
Status invalidArgument(LocatedFormat<Args...> format, Args&&... args) {
  return makeError(Code::kInvalidArgument, fmt::format(format.format, std::forward<Args>(args)...),
                   format.where);
}
template <typename... Args>
Status invalidUsage(LocatedFormat<Args...> format, Args&&... args) {
  return makeError(Code::kInvalidUsage, fmt::format(format.format, std::forward<Args>(args)...),
                   format.where);
}
template <typename... Args>
Status remoteError(LocatedFormat<Args...> format, Args&&... args) {
  return makeError(Code::kRemoteError, fmt::format(format.format, std::forward<Args>(args)...),
                   format.where);
}
template <typename... Args>
Status internalError(LocatedFormat<Args...> format, Args&&... args) {
  return makeError(Code::kInternalError, fmt::format(format.format, std::forward<Args>(args)...),
                   format.where);
}
// "open /tmp/x: No such file or directory"; for want of a descriptor with the limit of the process
Status systemError(std::string_view call, std::string_view subject, int errnoValue,
                   std::source_location where = std::source_location::current());

}  // namespace tutti

#define TUTTI_CONCAT_INNER(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` is an error.
#define TUTTI_TRY(expr)                                            \
  do {                                                             \
    if (::tutti::Status tuttiStatus = (expr); !tuttiStatus.ok()) { \
      return tuttiStatus;                                          \
    }                                                              \
  } while (false)

// TUTTI_TRY_ASSIGN(auto fd, openSegment(path));
#define TUTTI_TRY_ASSIGN(decl, expr) \
  TUTTI_TRY_ASSIGN_INNER(TUTTI_CONCAT(tuttiResult, __LINE__), decl, expr)
#define TUTTI_TRY_ASSIGN_INNER(result, decl, expr) \
  auto result = (expr);                            \
  if (!result.ok()) return result.takeStatus();    \
  decl = std::move(result).value()
