// The table of times that the tests of faults keep: see table.py.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tutti::faults {

using Clock = std::chrono::steady_clock;

// Notes what the fault took and expects it below the bound.
inline void keepTime(const std::string& fault, Clock::duration took,
                     std::chrono::milliseconds bound) {
  const auto seconds = [](auto span) { return std::chrono::duration<double>(span).count(); };
  EXPECT_LT(seconds(took), seconds(bound)) << fault;
  const char* path = std::getenv("FAULTS_TABLE");
  if (path == nullptr) return;
  char line[256];
  const int length = std::snprintf(line, sizeof line, "%s\t%.3f\t%.3f\n", fault.c_str(),
                                   seconds(took), seconds(bound));
  const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  // One write: several tests may append at once.
  EXPECT_EQ(::write(file, line, static_cast<size_t>(length)), length);
  ::close(file);
}

}  // namespace tutti::faults
