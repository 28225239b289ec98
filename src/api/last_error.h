// The thread's last error, as ncclGetLastError shows it.
#pragma once

#include <string_view>

namespace tutti::api {

// Keeps "ncclAllReduce: text", cut to the buffer; the pointer of threadError() stays valid for the
// thread's life.
void setThreadError(std::string_view function, std::string_view text);
void setThreadErrorText(std::string_view text);
const char* threadError();

}  // namespace tutti::api
