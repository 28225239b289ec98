// Making communicators of others, and ending one in a way that leaves it fit for that.
#include <nccl.h>

#include <memory>
#include <span>
#include <utility>

#include "api/abi.h"
#include "api/communicator_handles.h"
#include "api/config.h"
#include "comm/membership.h"
#include "comm/process.h"
#include "group/group.h"

namespace tutti::api {
namespace {

using comm::Communicator;
using comm::Derivation;
using comm::Process;

static_assert(comm::kNoColor == NCCL_SPLIT_NOCOLOR);

// No config means the parent's.
Result<comm::Config> childConfig(const Communicator& parent, const ncclConfig_t* config) {
  if (config == nullptr) return parent.config();
  return parseConfig(config, Process::get().settings());
}

// A rank without colour takes part in the exchange like the others, with a communicator that nobody
// holds.
Status splitWithoutColor(Communicator& parent, Communicator::Options options, ncclComm_t* newcomm) {
  auto outsider = std::make_shared<Communicator>(Process::get(), std::move(options));
  TUTTI_TRY(parent.adopt(outsider));
  Status status = group::Group::current().addInitialisation(std::move(outsider));
  if (status.ok() || status.code() == Code::kInProgress) *newcomm = nullptr;
  return status;
}

Status deriveChild(Communicator& parent, Communicator::Options options, ncclComm_t* newcomm) {
  TUTTI_TRY_ASSIGN(const Made made, makeCommunicator(std::move(options)));
  if (Status status = parent.adopt(made.communicator); !status.ok()) {
    TUTTI_TRY_ASSIGN([[maybe_unused]] auto removed, removeHandle(made.handle));
    return status;
  }
  return initialise(made, newcomm);
}

Status split(const std::shared_ptr<Communicator>& parent, Derivation derivation,
             ncclComm_t* newcomm, const ncclConfig_t* config) {
  // Who comes too early comes again: that call is none. Any other is counted before its checks, so
  // that the ranks stay in step when one of them fails those.
  TUTTI_TRY(parent->checkInitialised());
  derivation.tag = parent->nextSplitTag();
  derivation.parent = parent;
  TUTTI_TRY(checkPointer(newcomm, "newcomm"));
  TUTTI_TRY(parent->checkParent(Communicator::Fitness::kSound));
  const int color = derivation.color;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return invalidArgument("color is {}; it must be 0 or more, or NCCL_SPLIT_NOCOLOR ({})", color,
                           NCCL_SPLIT_NOCOLOR);
  }
  Communicator::Options options;
  TUTTI_TRY_ASSIGN(options.config, childConfig(*parent, config));
  options.derivation = std::move(derivation);
  if (color == NCCL_SPLIT_NOCOLOR) return splitWithoutColor(*parent, std::move(options), newcomm);
  return deriveChild(*parent, std::move(options), newcomm);
}

struct ShrinkCall {
  std::span<const int> excluded;
  int flags = 0;
};

Status shrink(const std::shared_ptr<Communicator>& parent, const ShrinkCall& call,
              ncclComm_t* newcomm, const ncclConfig_t* config) {
  TUTTI_TRY(checkPointer(newcomm, "newcomm"));
  if (call.flags != NCCL_SHRINK_DEFAULT && call.flags != NCCL_SHRINK_ABORT) {
    return invalidArgument(
        "shrinkFlags is {}; it must be NCCL_SHRINK_DEFAULT (0) or NCCL_SHRINK_ABORT (1)",
        call.flags);
  }
  const bool isAbort = call.flags == NCCL_SHRINK_ABORT;
  TUTTI_TRY(parent->checkParent(isAbort ? Communicator::Fitness::kMayHaveFailed
                                        : Communicator::Fitness::kSound));
  Derivation derivation{
      .kind = Derivation::Kind::kShrink, .parent = parent, .followsFailure = isAbort};
  TUTTI_TRY_ASSIGN(derivation.remaining,
                   comm::remainingRanks(parent->rankCount(), parent->rank(), call.excluded));
  derivation.tag = parent->nextShrinkTag(derivation.remaining);
  Communicator::Options options;
  TUTTI_TRY_ASSIGN(options.config, childConfig(*parent, config));
  options.derivation = std::move(derivation);
  if (isAbort) {
    Status status = parent->revoke();
    // Of a non-blocking parent the operations may still be ending: they are none of the child's.
    if (!status.ok() && status.code() != Code::kInProgress) return status;
  }
  return deriveChild(*parent, std::move(options), newcomm);
}

}  // namespace

TUTTI_EXPORT ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                         ncclConfig_t* config) {
  return abiCommCall("ncclCommSplit", comm, [&](const auto& parent) {
    return split(parent, {.kind = Derivation::Kind::kSplit, .color = color, .key = key}, newcomm,
                 config);
  });
}
TUTTI_WEAK_TWIN(ncclCommSplit);

TUTTI_EXPORT ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList,
                                          int excludeRanksCount, ncclComm_t* newcomm,
                                          ncclConfig_t* config, int shrinkFlags) {
  return abiCommCall("ncclCommShrink", comm, [&](const auto& parent) -> Status {
    if (excludeRanksCount < 0)
      return invalidArgument("excludeRanksCount is {}; it must be 0 or more", excludeRanksCount);
    if (excludeRanksCount > 0) TUTTI_TRY(checkPointer(excludeRanksList, "excludeRanksList"));
    return shrink(parent,
                  {.excluded = {excludeRanksList, static_cast<size_t>(excludeRanksCount)},
                   .flags = shrinkFlags},
                  newcomm, config);
  });
}
TUTTI_WEAK_TWIN(ncclCommShrink);

TUTTI_EXPORT ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return abiCommCall("ncclCommRevoke", comm, [&](const auto& communicator) -> Status {
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
      return invalidArgument("revokeFlags is {}; it must be NCCL_REVOKE_DEFAULT (0)", revokeFlags);
    }
    return communicator->revoke();
  });
}
TUTTI_WEAK_TWIN(ncclCommRevoke);

}  // namespace tutti::api
