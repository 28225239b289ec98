// Starts threads of the library: named, deaf to signals (those are the program's), and never a way
// for an exception to end the host.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace tutti {

// `name`: at most 15 characters. kSystemError when the system gives no thread.
Result<std::thread> startThread(const char* name, std::function<void()> body);

}  // namespace tutti
