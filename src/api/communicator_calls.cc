// Making, ending and asking communicators.
#include <nccl.h>
#include <tutti/host.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "api/abi.h"
#include "api/communicator_handles.h"
#include "api/config.h"
#include "api/last_error.h"
#include "comm/hash.h"
#include "comm/process.h"
#include "group/group.h"

namespace tutti::api {
namespace {

using comm::Communicator;
using comm::Process;

Status checkRank(int rankCount, int rank) {
  if (rankCount < 1) return invalidArgument("nranks is {}; it must be at least 1", rankCount);
  if (rank < 0 || rank >= rankCount)
    return invalidArgument("rank is {}; with nranks {} it must be 0 to {}", rank, rankCount,
                           rankCount - 1);
  return {};
}

std::array<std::byte, bootstrap::kUniqueIdBytes> bytesOf(const ncclUniqueId& id) {
  std::array<std::byte, bootstrap::kUniqueIdBytes> bytes;
  static_assert(sizeof id == bootstrap::kUniqueIdBytes);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

uint64_t hashOf(std::span<const ncclUniqueId> ids) {
  return comm::hashOf({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

// An id that is given twice is one place.
std::vector<bootstrap::UniqueId> differentOf(const std::vector<bootstrap::UniqueId>& ids) {
  std::vector<bootstrap::UniqueId> different;
  for (const bootstrap::UniqueId& id : ids) {
    if (std::ranges::find(different, id.job, &bootstrap::UniqueId::job) == different.end())
      different.push_back(id);
  }
  return different;
}

struct Wanted {
  int rankCount = 0;
  int rank = 0;
  const ncclConfig_t* config = nullptr;
  device::Device* device = nullptr;  // null: the process's choice
};

// What a tool is told of a communicator that is yet to be; of a split it is told the parent.
CallNote noteOfNew(const ncclUniqueId* id, int rankCount, int rank) {
  CallNote note{.kind = observe::CallKind::kCommunicator};
  note.payload.rank = rank;
  note.payload.rankCount = rankCount;
  if (id == nullptr) return note;
  const Result<bootstrap::UniqueId> decoded = bootstrap::decode(bytesOf(*id));
  if (decoded.ok()) note.payload.communicator = comm::hashOf(decoded.value().job);
  return note;
}

// Where there are several ids, groups of ranks meet at one each. That all ranks hold the same list
// is checked when they meet.
Status initRank(ncclComm_t* comm, std::span<const ncclUniqueId> ids, const Wanted& wanted) {
  TUTTI_TRY(checkPointer(comm, "comm"));
  TUTTI_TRY(checkRank(wanted.rankCount, wanted.rank));
  TUTTI_TRY_ASSIGN(comm::Config config, parseConfig(wanted.config, Process::get().settings()));
  std::vector<bootstrap::UniqueId> decoded;
  for (const ncclUniqueId& id : ids) {
    TUTTI_TRY_ASSIGN(decoded.emplace_back(), bootstrap::decode(bytesOf(id)));
  }
  TUTTI_TRY_ASSIGN(const Made made, makeCommunicator({.id = decoded.front(),
                                                      .places = differentOf(decoded),
                                                      .rank = Rank{wanted.rank},
                                                      .rankCount = wanted.rankCount,
                                                      .config = std::move(config),
                                                      .idsHash = ids.size() == 1 ? 0 : hashOf(ids),
                                                      .device = wanted.device}));
  return initialise(made, comm);
}

Result<Made> makeOneOfAll(const bootstrap::UniqueId& id, const Wanted& wanted, int gpu) {
  TUTTI_TRY_ASSIGN(device::Device * device, Process::get().chooseDevice(gpu));
  return makeCommunicator({.id = id,
                           .rank = Rank{wanted.rank},
                           .rankCount = wanted.rankCount,
                           .config = {},
                           .device = device});
}

// Opens a group and, unless it is ended by then, ends it without running anything: an exception
// must not leave the thread in a group that nobody opened.
class OpenGroup {
 public:
  explicit OpenGroup(group::Group& group) : group_(group) { group_.start(); }
  ~OpenGroup() {
    if (!isOpen_) return;
    [[maybe_unused]] const Status ended = group_.endWithoutRunning();
  }
  OpenGroup(const OpenGroup&) = delete;
  OpenGroup& operator=(const OpenGroup&) = delete;
  Status end() {
    isOpen_ = false;
    return group_.end();
  }

 private:
  group::Group& group_;
  bool isOpen_ = true;
};

// The communicators of one ncclCommInitAll and the place where they meet: unless all of them are
// kept, none stays.
class MadeTogether {
 public:
  explicit MadeTogether(size_t count)
      : id_(bootstrap::makeLocalUniqueId(Process::get().directory(), systemRng())) {
    made_.reserve(count);
  }
  ~MadeTogether() {
    for (const Made& one : made_) {
      one.communicator->requestAbort();
      [[maybe_unused]] const auto removed = removeHandle(one.handle);
    }
    if (!isKept_) bootstrap::closeRoot(Process::get().directory(), id_);
  }
  MadeTogether(const MadeTogether&) = delete;
  MadeTogether& operator=(const MadeTogether&) = delete;

  const bootstrap::UniqueId& id() const { return id_; }
  const Made& add(Made one) { return made_.emplace_back(std::move(one)); }
  void keep(ncclComm_t* comms) {
    for (size_t rank = 0; rank < made_.size(); ++rank) comms[rank] = made_[rank].handle;
    made_.clear();
    isKept_ = true;
  }

 private:
  bootstrap::UniqueId id_;
  std::vector<Made> made_;
  bool isKept_ = false;
};

Status initAll(ncclComm_t* comms, int deviceCount, const int* devices) {
  TUTTI_TRY(checkPointer(comms, "comm"));
  if (deviceCount < 1) return invalidArgument("ndev is {}; it must be at least 1", deviceCount);
  for (int i = 0; devices != nullptr && i < deviceCount; ++i) {
    if (devices[i] < 0)
      return invalidArgument("devlist[{}] is {}; devices count from 0", i, devices[i]);
  }
  TUTTI_TRY(Process::get().checkNotForked());
  MadeTogether together(static_cast<size_t>(deviceCount));
  group::Group& group = group::Group::current();
  OpenGroup open(group);
  for (int rank = 0; rank < deviceCount; ++rank) {
    TUTTI_TRY_ASSIGN(Made one, makeOneOfAll(together.id(), {deviceCount, rank, nullptr},
                                            devices == nullptr ? rank : devices[rank]));
    TUTTI_TRY(group.addInitialisation(together.add(std::move(one)).communicator));
  }
  TUTTI_TRY(open.end());
  together.keep(comms);
  return {};
}

// A split communicator learns its ranks while it initialises.
Status checkRankKnown(const Communicator& communicator) {
  return communicator.rankCount() > 0 ? Status() : communicator.checkReady();
}

// Work that does not end within this long (a user's function that blocks a stream) is left to a
// thread of its own.
constexpr Nanoseconds kAbortPatience = std::chrono::milliseconds(500);

Status destroy(ncclComm_t handle) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<Communicator> communicator, removeHandle(handle));
  communicator->shutDown();
  return {};
}

Status abortCommunicator(ncclComm_t handle) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<Communicator> communicator, closeHandle(handle));
  communicator->requestAbort();
  if (communicator->waitQuiet(kAbortPatience)) {
    retireHandle(handle);
    return {};
  }
  std::thread([communicator = std::move(communicator), handle] {
    while (!communicator->waitQuiet(kAbortPatience)) {
    }
    retireHandle(handle);
  }).detach();
  return {};
}

}  // namespace

TUTTI_EXPORT ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return abiCall("ncclGetUniqueId", [&]() -> Status {
    TUTTI_TRY(checkPointer(uniqueId, "uniqueId"));
    comm::Process& process = comm::Process::get();
    TUTTI_TRY(process.checkNotForked());
    TUTTI_TRY_ASSIGN(
        const bootstrap::UniqueId id,
        bootstrap::makeUniqueId(process.directory(), process.networkOptions(), systemRng()));
    const auto bytes = bootstrap::encode(id);
    std::memcpy(uniqueId, bytes.data(), bytes.size());
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGetUniqueId);

TUTTI_EXPORT ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                            int rank) {
  const auto note = [&] { return noteOfNew(&commId, nranks, rank); };
  return abiCall("ncclCommInitRank", note, [&] {
    return initRank(comm, {&commId, 1}, {nranks, rank, nullptr});
  });
}
TUTTI_WEAK_TWIN(ncclCommInitRank);

TUTTI_EXPORT ncclResult_t pncclTuttiCommInitRankHost(ncclComm_t* comm, int nranks,
                                                     ncclUniqueId commId, int rank) {
  const auto note = [&] { return noteOfNew(&commId, nranks, rank); };
  return abiCall("ncclTuttiCommInitRankHost", note, [&] {
    return initRank(comm, {&commId, 1}, {nranks, rank, nullptr, &Process::get().hostDevice()});
  });
}
TUTTI_WEAK_TWIN(ncclTuttiCommInitRankHost);

TUTTI_EXPORT ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                                  int rank, ncclConfig_t* config) {
  const auto note = [&] { return noteOfNew(&commId, nranks, rank); };
  return abiCall("ncclCommInitRankConfig", note, [&] {
    return initRank(comm, {&commId, 1}, {nranks, rank, config});
  });
}
TUTTI_WEAK_TWIN(ncclCommInitRankConfig);

TUTTI_EXPORT ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank,
                                                    int nId, ncclUniqueId* commIds,
                                                    ncclConfig_t* config) {
  const auto note = [&] { return noteOfNew(commIds, nranks, myrank); };
  return abiCall("ncclCommInitRankScalable", note, [&]() -> Status {
    TUTTI_TRY(checkPointer(commIds, "commIds"));
    if (nId < 1 || nId > nranks)
      return invalidArgument("nId is {}; with nranks {} it must be 1 to {}", nId, nranks, nranks);
    return initRank(newcomm, {commIds, static_cast<size_t>(nId)}, {nranks, myrank, config});
  });
}
TUTTI_WEAK_TWIN(ncclCommInitRankScalable);

TUTTI_EXPORT ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  const auto note = [&] { return noteOfNew(nullptr, ndev, 0); };
  return abiCall("ncclCommInitAll", note, [&] { return initAll(comm, ndev, devlist); });
}
TUTTI_WEAK_TWIN(ncclCommInitAll);

TUTTI_EXPORT ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return abiCommCall("ncclCommFinalize", comm, [](const auto& communicator) -> Status {
    group::Group& group = group::Group::current();
    if (!group.isOpen()) return communicator->finalize();
    group.addEnding({.run = [communicator] { return communicator->finalize(); }});
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommFinalize);

TUTTI_EXPORT ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  const auto note = [&] { return noteOfHandle(comm); };
  return abiCall("ncclCommDestroy", note, [&]() -> Status {
    if (comm == nullptr) return {};  // as free(NULL)
    group::Group& group = group::Group::current();
    if (!group.isOpen()) return destroy(comm);
    TUTTI_TRY_ASSIGN(const auto communicator, findCommunicator(comm));
    // One that this group was to make is none that it ends.
    if (group.willInitialise(*communicator)) return destroy(comm);
    group.addEnding({.run = [comm] { return destroy(comm); }, .isOwed = true});
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommDestroy);

TUTTI_EXPORT ncclResult_t pncclCommAbort(ncclComm_t comm) {
  const auto note = [&] { return noteOfHandle(comm); };
  return abiCall("ncclCommAbort", note, [&]() -> Status {
    if (comm == nullptr) return {};
    return abortCommunicator(comm);
  });
}
TUTTI_WEAK_TWIN(ncclCommAbort);

TUTTI_EXPORT ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return abiCommCall("ncclCommGetAsyncError", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(asyncError, "asyncError"));
    const Code code = communicator->asyncError();
    *asyncError = static_cast<ncclResult_t>(code);
    if (code != Code::kOk && code != Code::kInProgress)
      setThreadErrorText(communicator->lastError());
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommGetAsyncError);

TUTTI_EXPORT ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return abiCommCall("ncclCommCount", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(count, "count"));
    TUTTI_TRY(checkRankKnown(*communicator));
    *count = communicator->rankCount();
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommCount);

TUTTI_EXPORT ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return abiCommCall("ncclCommCuDevice", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(device, "device"));
    *device = communicator->device().caps().index;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommCuDevice);

TUTTI_EXPORT ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return abiCommCall("ncclCommUserRank", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(rank, "rank"));
    TUTTI_TRY(checkRankKnown(*communicator));
    *rank = index(communicator->rank());
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommUserRank);

}  // namespace tutti::api
