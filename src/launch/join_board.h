// How the ranks of a host come to share their board: the lowest of them makes it, hands it over,
// and tells the others where.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/handoff.h"
#include "bootstrap/peer_info.h"
#include "observe/recorder.h"

namespace tutti::launch {

struct BoardParts {
  bootstrap::Bootstrap& bootstrap;
  bootstrap::Handoff& handoff;
  const std::vector<bootstrap::PeerInfo>& peers;  // by rank
  const std::atomic<bool>& abort;
  std::chrono::milliseconds timeout;
  observe::ProcessRecorders& recorders;
  std::string name;  // of the communicator, or its job
  // Set where the rank offers its board. An offer ends when all have taken it, or some time-outs
  // later; who knows that nobody will take it any more withdraws it.
  std::optional<bootstrap::HandoffToken>& offer;
};

// The rank's own page, on the board that it shares with the ranks of its host. Blocks until the
// lowest of them has come this far. Where sharing fails, the rank has a board for itself (logged):
// it runs, but nobody can say why it is late. Called by all ranks, on their initialising threads.
Result<std::unique_ptr<observe::Recorder>> joinBoard(const BoardParts& parts);

}  // namespace tutti::launch
