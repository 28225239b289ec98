// Some of a communicator's ranks talk over its bootstrap, without the others: how a child's ranks
// meet while ranks that have no part in it are elsewhere, or dead.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace tutti::comm {

struct Subgroup {
  bootstrap::Bootstrap& bootstrap;
  std::span<const Rank> members;  // the same on all of them; the caller is among them
  uint64_t tag = 0;               // of this gathering alone; the low byte is its rounds'
  std::chrono::milliseconds timeout{0};
  const std::atomic<bool>* abort = nullptr;
  std::string_view what;  // "ncclCommSplit", for messages
};

// The members' blocks, by place in `members`; the caller has filled its own. ceil(log2(n)) rounds.
// Where `own` is an error the others are told it and fail with it too, and so are they where one
// does not come in time: every member returns, and says which rank is to blame.
Status gather(const Subgroup& group, Status own, std::span<std::byte> all, size_t blockBytes);

}  // namespace tutti::comm
