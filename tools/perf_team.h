// A team of ranks that share no memory (several hosts): it meets through the library itself.
#pragma once

#include "tools/perf_board.h"
#include "tools/perf_session.h"

namespace tutti::tools {

// One rank's view; its own thread only. REQUIRES: session outlives the team.
class LibraryTeam final : public Team {
 public:
  explicit LibraryTeam(Session& session) : session_(session) {}

  Status barrier(int rank) override;
  Result<std::vector<double>> gather(int rank, double value) override;

 private:
  Session& session_;
};

}  // namespace tutti::tools
