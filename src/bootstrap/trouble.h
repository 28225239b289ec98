// Why a connection cannot be made or awaited, with what this host knows of the cause.
#pragma once

#include <string>

namespace tutti::bootstrap {

// The system's words for it. Where this host has no way there, its interfaces, too; where it has no
// port left, their range.
std::string connectTrouble(int errnoValue);

// "net.ipv4.ip_local_port_range, 32768 to 60999": ports that the system gives out.
std::string portRange();

}  // namespace tutti::bootstrap
