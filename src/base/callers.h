// Where the program has called the library from, for people who look for the call. For errors only:
// it allocates, and takes some tens of microseconds.
#pragma once

#include <string>

namespace tutti {

// "ncclBroadcast, called from app(step(int)+0x1f) < app(+0x11d4) < libc.so.6(+0x2724a)": the
// function of the library that the calling thread is in, then the frames of the program that led
// there, the nearest first. Names are those that a module exports; offsets without one count from
// the module's beginning, as addr2line takes them. Empty where the stack cannot be read.
std::string describeCallers();

}  // namespace tutti
