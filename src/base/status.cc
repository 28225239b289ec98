#include "base/status.h"

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
  return makeError(Code::kSystemError, fmt::format("{} {}: {}", call, subject, reason), where);
}

}  // namespace tutti
