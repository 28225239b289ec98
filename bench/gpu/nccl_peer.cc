#include "nccl_peer.h"

#include <dlfcn.h>

#include "nccl.h"

namespace tutti::bench {

struct NcclPeer::Calls {
  decltype(&ncclGetVersion) getVersion;
  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclCommInitRank) commInitRank;
  decltype(&ncclCommAbort) commAbort;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclAllGather) allGather;
  decltype(&ncclReduceScatter) reduceScatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduce) reduce;
  decltype(&ncclAlltoAll) allToAll;
  decltype(&ncclGather) gather;
  decltype(&ncclScatter) scatter;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGroupStart) groupStart;
  decltype(&ncclGroupEnd) groupEnd;
};

namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) std::fprintf(stderr, "no %s in the peer library\n", name);
  return function != nullptr;
}

void expect(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "peer library: %s gave %d\n", what, static_cast<int>(result));
  std::_Exit(4);
}

ncclComm_t handle(void* communicator) { return static_cast<ncclComm_t>(communicator); }
cudaStream_t streamOf(const Member& member) {
  return reinterpret_cast<cudaStream_t>(member.stream());
}

}  // namespace

NcclPeer::NcclPeer(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}

std::unique_ptr<NcclPeer> NcclPeer::open(Team& team, const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return nullptr;
  }
  auto calls = std::make_unique<Calls>();
  const bool isWhole =
      find(library, "ncclGetVersion", calls->getVersion) &&
      find(library, "ncclGetUniqueId", calls->getUniqueId) &&
      find(library, "ncclCommInitRank", calls->commInitRank) &&
      find(library, "ncclCommAbort", calls->commAbort) &&
      find(library, "ncclAllReduce", calls->allReduce) &&
      find(library, "ncclAllGather", calls->allGather) &&
      find(library, "ncclReduceScatter", calls->reduceScatter) &&
      find(library, "ncclBroadcast", calls->broadcast) &&
      find(library, "ncclReduce", calls->reduce) &&
      find(library, "ncclAlltoAll", calls->allToAll) &&
      find(library, "ncclGather", calls->gather) && find(library, "ncclScatter", calls->scatter) &&
      find(library, "ncclSend", calls->send) && find(library, "ncclRecv", calls->recv) &&
      find(library, "ncclGroupStart", calls->groupStart) &&
      find(library, "ncclGroupEnd", calls->groupEnd);
  if (!isWhole) return nullptr;
  std::unique_ptr<NcclPeer> peer(new NcclPeer(std::move(calls)));
  peer->communicators_.resize(static_cast<size_t>(team.ranks()));
  ncclUniqueId id;
  expect(peer->calls_->getUniqueId(&id), "ncclGetUniqueId");
  team.run([&](Member& member) {
    ncclComm_t communicator = nullptr;
    expect(peer->calls_->commInitRank(&communicator, team.ranks(), id, member.rank()),
           "ncclCommInitRank");
    peer->communicators_[static_cast<size_t>(member.rank())] = communicator;
  });
  return peer;
}

NcclPeer::~NcclPeer() = default;  // the process ends with the bench

int NcclPeer::version() const {
  int version = 0;
  calls_->getVersion(&version);
  return version;
}

void NcclPeer::launch(Member& member, const Job& job) {
  const ncclComm_t communicator = handle(communicators_[static_cast<size_t>(member.rank())]);
  const cudaStream_t stream = streamOf(member);
  const auto type = static_cast<ncclDataType_t>(job.type);
  const void* in = job.input;
  void* out = job.output;
  const size_t count = job.count;
  switch (job.collective) {
    case Collective::kAllReduce:
      expect(calls_->allReduce(in, out, count, type, ncclSum, communicator, stream), "AllReduce");
      break;
    case Collective::kAllGather:
      expect(calls_->allGather(in, out, count, type, communicator, stream), "AllGather");
      break;
    case Collective::kReduceScatter:
      expect(calls_->reduceScatter(in, out, count, type, ncclSum, communicator, stream),
             "ReduceScatter");
      break;
    case Collective::kBroadcast:
      expect(calls_->broadcast(in, out, count, type, job.root, communicator, stream), "Broadcast");
      break;
    case Collective::kReduce:
      expect(calls_->reduce(in, out, count, type, ncclSum, job.root, communicator, stream),
             "Reduce");
      break;
    case Collective::kAllToAll:
      expect(calls_->allToAll(in, out, count, type, communicator, stream), "AlltoAll");
      break;
    case Collective::kGather:
      expect(calls_->gather(in, out, count, type, job.root, communicator, stream), "Gather");
      break;
    case Collective::kScatter:
      expect(calls_->scatter(in, out, count, type, job.root, communicator, stream), "Scatter");
      break;
    case Collective::kSend:
    case Collective::kRecv: break;
  }
}

void NcclPeer::exchange(Member& member, const void* from, void* to, uint64_t bytes) {
  const ncclComm_t communicator = handle(communicators_[static_cast<size_t>(member.rank())]);
  const cudaStream_t stream = streamOf(member);
  const int ranks = member.team().ranks();
  const int next = (member.rank() + 1) % ranks;
  const int previous = (member.rank() + ranks - 1) % ranks;
  expect(calls_->groupStart(), "GroupStart");
  expect(calls_->send(from, bytes, ncclInt8, next, communicator, stream), "Send");
  expect(calls_->recv(to, bytes, ncclInt8, previous, communicator, stream), "Recv");
  expect(calls_->groupEnd(), "GroupEnd");
}

}  // namespace tutti::bench
