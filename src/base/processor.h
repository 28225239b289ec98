// Kinds of processors between which choices differ by what was measured.
#pragma once

#include <cstdint>

namespace tutti {

enum class ProcessorKind : int32_t {
  kOther = 0,
  kAmdFrom26 = 1,  // AMD's from family 26 on
};
// Of the one that runs this. Some instructions that a virtual machine may trap.
ProcessorKind processorKind();

}  // namespace tutti
