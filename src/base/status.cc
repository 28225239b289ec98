#include "base/status.h"

#include <cstring>

#include "base/log.h"

namespace tutti {

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) detail_ = std::make_unique<Detail>(Detail{code, std::move(message)});
}

Status Status::clone() const { return ok() ? Status() : Status(detail_->code, detail_->message); }

Status makeError(Code code, std::string message, std::source_location where) {
  log::write(log::Level::kWarn, log::Subsystem::kAll, message, where);
  return Status(code, std::move(message));
}

Status systemError(std::string_view call, std::string_view subject, int errnoValue,
                   std::source_location where) {
  char text[128] = "";
  const char* reason = strerror_r(errnoValue, text, sizeof text);
  return makeError(Code::kSystemError, fmt::format("{} {}: {}", call, subject, reason), where);
}

}  // namespace tutti
