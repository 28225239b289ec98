// Do the kernels give what the CPU's folds give, bit for bit?
#pragma once

#include "team.h"

namespace tutti::bench {

struct CheckOptions {
  bool isShort = false;  // for the sanitizers: few cases, small ones
  uint64_t seed = 1;
};

// Prints what failed and a summary; returns the number of failed cases.
int checkAll(Team& team, const CheckOptions& options);

}  // namespace tutti::bench
