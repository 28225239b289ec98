// A rank of this host, and the GPU that it runs on.
#pragma once

#include <string>

#include "base/ids.h"

namespace tutti::comm {

struct HostMember {
  Rank rank{0};
  std::string busId;  // of its GPU, as the kernel writes it; "" for a CPU rank
};

}  // namespace tutti::comm
