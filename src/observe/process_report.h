// What /proc tells of a process, for people who were not there: its threads, its sockets, the
// settings that it was started with.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/settings.h"

namespace tutti::observe {

// A table of threads: name, what each does, where the kernel holds it; and how to get at the user's
// stacks, which nobody can read without stopping the process.
std::string threadReport(int32_t processId);

// The TCP sockets that the process has open, with what lies in their queues.
std::string socketReport(int32_t processId);

// Pure: of the text of /proc/<pid>/net/tcp or tcp6 the sockets with these inodes, one a line.
std::string describeSockets(std::string_view table, const std::set<uint64_t>& inodes);

// "NAME=value (source)" a line; those that differ from the default, or all that do something.
// Addresses to meet at are not shown.
enum class Shown : uint8_t { kChanged, kAll };
std::string describeSettings(const Settings& settings, Shown shown);

// The settings among the variables that the process was started with.
std::string startSettings(int32_t processId);

}  // namespace tutti::observe
