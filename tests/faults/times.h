// The table of times that the tests of faults keep: see table.py. Each test of the program that
// this is linked into has a row, without doing anything for it: those of keepTime(), or that of the
// whole test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace tutti::faults {

using Clock = std::chrono::steady_clock;

// Notes what the fault took and expects it below the bound.
void keepTime(const std::string& fault, Clock::duration took, std::chrono::milliseconds bound);

// For a test that keeps no time and is longer than others by what it does. A sanitizer has four
// times as much.
void setBoundOfTest(std::chrono::seconds bound);

// For a test after which the process rightly holds more than before.
void allowLeftovers(const char* why);

}  // namespace tutti::faults
