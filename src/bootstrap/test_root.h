// Tests only: how ranks call a root.
#pragma once

#include <chrono>

#include "bootstrap/root_client.h"

namespace tutti::bootstrap {

// Of a rank with a process of its own. `key` outlives the call.
inline RootCall rootCall(const SocketAddress& root, const Key& key, int rank, int rankCount) {
  return {.address = root,
          .key = &key,
          .job = "test",
          .report = {.rank = Rank{rank},
                     .rankCount = rankCount,
                     .timeout = std::chrono::seconds(60),
                     .contact = {.processHash = static_cast<uint64_t>(rank) + 1, .who = "t:1"}},
          .timeout = std::chrono::seconds(60)};
}

}  // namespace tutti::bootstrap
