#include "base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/descriptor_limit.h"
#include "base/log.h"

namespace tutti {

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) detail_.reset(new Detail{code, std::move(message)});
}

// Short enough to lie within the string itself.
Status::Detail* Status::exhausted() noexcept {
  static const Detail detail{Code::kSystemError, "out of memory"};
  return const_cast<Detail*>(&detail);  // nobody writes to a detail
}

void Status::Free::operator()(Detail* detail) const noexcept {
  if (detail != exhausted()) delete detail;
}

namespace {

// Of this process, which may be why it got no memory or no thread; a thread needs both.
std::string limitsBehind(int errnoValue) {
  if (errnoValue != ENOMEM && errnoValue != EAGAIN) return "";
  rlimit space{}, processes{};
  std::string text;
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    text +=
        fmt::format("; its address space is limited to {} KiB (ulimit -v)", space.rlim_cur >> 10);
  const bool isCounted = errnoValue == EAGAIN && ::getrlimit(RLIMIT_NPROC, &processes) == 0;
  if (isCounted && processes.rlim_cur != RLIM_INFINITY)
    text +=
        fmt::format("; its user may have {} threads and processes (ulimit -u)", processes.rlim_cur);
  return text;
}

}  // namespace

Status Status::outOfMemory() noexcept {
  Status status;
  status.detail_.reset(exhausted());
  return status;
}

Status Status::clone() const noexcept {
  if (ok() || detail_.get() == exhausted()) return ok() ? Status() : outOfMemory();
  try {
    return Status(detail_->code, detail_->message);
  } catch (const std::bad_alloc&) {
    return outOfMemory();
  }
}

Status makeError(Code code, std::string message, std::source_location where) {
  log::write(log::Level::kWarn, log::Subsystem::kAll, message, where);
  return Status(code, std::move(message));
}

Status systemError(std::string_view call, std::string_view subject, int errnoValue,
                   std::source_location where) {
  if (errnoValue == EMFILE) {
    return makeError(Code::kSystemError,
                     fmt::format("{} {}: needs one more file descriptor, but the limit of this "
                                 "process is {} (ulimit -n)",
                                 call, subject, descriptorLimit()),
                     where);
  }
  char text[128] = "";
  const char* reason = strerror_r(errnoValue, text, sizeof text);
  return makeError(Code::kSystemError,
                   fmt::format("{} {}: {}{}", call, subject, reason, limitsBehind(errnoValue)),
                   where);
}

}  // namespace tutti
