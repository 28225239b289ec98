// Which host this is: equal for processes that can share memory, different for all others.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::comm {

// Of the host name and the kernel's boot id (containers of one machine may share the second, hosts
// of one image the first); of `hostId` alone (NCCL_HOSTID) when it is not empty.
uint64_t hostHash(std::string_view hostId);

}  // namespace tutti::comm
