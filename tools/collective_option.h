// The name of a collective on the command line.
#pragma once

#include <string>

#include "wire/types.h"

namespace tutti::tools {

// By nccl-tests' names or the interface's, in any case: all_reduce, AllReduce, sendrecv. A
// CLI::ValidationError lists what is known.
Collective parseCollective(const std::string& text);

}  // namespace tutti::tools
