// Teams of a communicator: arithmetic on ranks. A CPU rank's memory cannot be loaded and stored by
// its peers' kernels, so its Lsa team is itself, and all ranks are its rail.
#include <nccl.h>
#include <nccl_device.h>

#include "api/abi.h"

using tutti::Status;
using tutti::api::abiCommCall;

namespace {

// The team that `make` computes, or the empty one when the communicator is not ready.
template <typename Make>
ncclTeam_t teamOf(const char* function, ncclComm_t comm, Make make) {
  ncclTeam_t team{};
  [[maybe_unused]] const ncclResult_t code =
      abiCommCall(function, comm, [&](const auto& communicator) -> Status {
        TUTTI_TRY(communicator->checkReady());
        team = make(*communicator);
        return {};
      });
  return team;
}

Status checkMember(const ncclTeam_t& team, int rank) {
  if (rank >= 0 && rank < team.nRanks) return {};
  return tutti::invalidArgument("rank is {}; the team has {} ranks", rank, team.nRanks);
}

}  // namespace

TUTTI_EXPORT ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  return teamOf("ncclTeamWorld", comm, [](const auto& communicator) {
    return ncclTeam_t{
        .nRanks = communicator.rankCount(), .rank = tutti::index(communicator.rank()), .stride = 1};
  });
}
TUTTI_WEAK_TWIN(ncclTeamWorld);

TUTTI_EXPORT ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  return teamOf("ncclTeamLsa", comm,
                [](const auto&) { return ncclTeam_t{.nRanks = 1, .rank = 0, .stride = 1}; });
}
TUTTI_WEAK_TWIN(ncclTeamLsa);

TUTTI_EXPORT ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  return teamOf("ncclTeamRail", comm, [](const auto& communicator) {
    return ncclTeam_t{
        .nRanks = communicator.rankCount(), .rank = tutti::index(communicator.rank()), .stride = 1};
  });
}
TUTTI_WEAK_TWIN(ncclTeamRail);

TUTTI_EXPORT int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  int result = -1;
  [[maybe_unused]] const ncclResult_t code =
      abiCommCall("ncclTeamRankToWorld", comm, [&](const auto& communicator) -> Status {
        TUTTI_TRY(communicator->checkReady());
        TUTTI_TRY(checkMember(team, rank));
        const int world = tutti::index(communicator->rank()) + (rank - team.rank) * team.stride;
        if (world < 0 || world >= communicator->rankCount()) {
          return tutti::invalidArgument("member {} of the team would be rank {} of {}", rank, world,
                                        communicator->rankCount());
        }
        result = world;
        return {};
      });
  return result;
}
TUTTI_WEAK_TWIN(ncclTeamRankToWorld);

// Only this rank itself is in its Lsa team.
TUTTI_EXPORT int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  int result = -1;
  [[maybe_unused]] const ncclResult_t code =
      abiCommCall("ncclTeamRankToLsa", comm, [&](const auto& communicator) -> Status {
        TUTTI_TRY(communicator->checkReady());
        TUTTI_TRY(checkMember(team, rank));
        if (rank != team.rank)
          return tutti::invalidArgument("member {} of the team is not in this rank's Lsa team",
                                        rank);
        result = 0;
        return {};
      });
  return result;
}
TUTTI_WEAK_TWIN(ncclTeamRankToLsa);
