// Which host this is: equal for processes that can share memory, different for all others.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tutti::comm {

// Of the host name and the kernel's boot id (containers of one machine may share the second, hosts
// of one image the first), or of `hostId` (NCCL_HOSTID) when it is not empty; and of the network
// namespace, since memory is handed over by sockets that no other one sees. kSystemError when there
// is no descriptor left to read them with: a guess would part ranks that belong together.
Result<uint64_t> hostHash(std::string_view hostId);

// Which machine this is, whatever host it plays: containers share one's CPUs. 0 where the kernel
// does not tell, or there is no descriptor left to ask it with.
uint64_t machineHash();

// Pure: the identity's parts in one number.
uint64_t hashOfHost(std::string_view name, std::string_view bootId, uint64_t networkNamespace);

}  // namespace tutti::comm
