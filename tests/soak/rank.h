// One rank of a round: a thread that carries out the plan's actions on its own communicators.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "plan.h"

namespace tutti::soak {

// Prints what went wrong, for the runner, and ends the process.
[[noreturn]] void fail(const Plan& plan, const std::string& text);

class RankRunner {
 public:
  RankRunner(const Plan& plan, size_t roundNumber, int rank);
  // Begins with the ids that all ranks share, ends when all communicators are gone.
  void run(std::vector<ncclUniqueId> ids);

 private:
  const Team& teamAt(int team) const { return round_.teams[static_cast<size_t>(team)]; }
  ncclComm_t& commAt(int team) { return comms_[static_cast<size_t>(team)]; }
  bool isMember(int team) const { return teamAt(team).placeOf(rank_) >= 0; }
  int process() const { return plan_.processOfRank[static_cast<size_t>(rank_)]; }

  void initialise(std::vector<ncclUniqueId>& ids);
  void perform(const Action& action);
  void runCalls(const Action& action);
  void split(const Action& action);
  void shrink(const Action& action, int flags);
  void destroy(int team, bool finalizes);
  void freeze(const Action& action);
  void endWhileBusy(const Action& action);
  void surviveDeath(const Action& action);
  // All-reduces until one fails; its code and text. `haveMet` turns true with the first that does
  // not: all ranks of the team have come so far.
  std::pair<ncclResult_t, std::string> loopUntilError(int team,
                                                      std::atomic<bool>* haveMet = nullptr);
  // With a look at what the child says of itself.
  void adopt(int team, ncclComm_t comm);
  // Ends the process where `result` is no success.
  void want(ncclResult_t result, const char* call);
  [[noreturn]] void failHere(const std::string& text);

  const Plan& plan_;
  const Round& round_;
  size_t roundNumber_;
  int rank_;
  const Action* current_ = nullptr;
  std::vector<ncclComm_t> comms_;  // by team; null where this rank is no member
  std::vector<cudaStream_t> streams_;
};

}  // namespace tutti::soak
