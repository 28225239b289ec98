// The ten operations.
#include <nccl.h>

#include <limits>

#include "api/abi.h"
#include "api/buffer_check.h"
#include "group/group.h"

namespace tutti::api {
namespace {

using comm::Communicator;

// One call as it came over the boundary.
struct Arguments {
  Collective collective;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // root, or the other rank of a transfer
  cudaStream_t stream = nullptr;
};

// A count that no element size and number of ranks takes beyond 2^63 bytes: saves small calls a
// division.
constexpr size_t kUnquestioned = size_t{1} << 24;

// Buffers hold one block or one a rank; all of it must be addressable.
Status checkCount(const Arguments& arguments, int32_t rankCount) {
  if (arguments.count <= kUnquestioned) return {};
  const size_t blocks = static_cast<size_t>(schedule::blockCount(arguments.collective, rankCount));
  const size_t bytes = sizeOf(static_cast<DataType>(arguments.type)) * blocks;
  constexpr size_t kMost = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  if (arguments.count <= kMost / bytes) return {};
  return invalidArgument("count is {}: {} block(s) of it in {} exceed 2^63 bytes", arguments.count,
                         blocks, name(static_cast<DataType>(arguments.type)));
}

bool usesInput(const Arguments& arguments, const Communicator& communicator) {
  const bool isRoot = arguments.peer == index(communicator.rank());
  switch (arguments.collective) {
    case Collective::kRecv: return false;
    case Collective::kBroadcast:
    case Collective::kScatter: return isRoot;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kSend: return true;
  }
  return true;
}

bool usesOutput(const Arguments& arguments, const Communicator& communicator) {
  const bool isRoot = arguments.peer == index(communicator.rank());
  switch (arguments.collective) {
    case Collective::kSend: return false;
    case Collective::kReduce:
    case Collective::kGather: return isRoot;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kAllToAll:
    case Collective::kScatter:
    case Collective::kRecv: return true;
  }
  return true;
}

Status checkArguments(const Arguments& arguments, const Communicator& communicator) {
  const auto type = rawValue(arguments.type);
  if (type < 0 || type >= kDataTypeCount) {
    return invalidArgument("datatype is {}; it must be 0 to {}", type, kDataTypeCount - 1);
  }
  const bool isTransfer = isPointToPoint(arguments.collective);
  if ((hasRoot(arguments.collective) || isTransfer) &&
      (arguments.peer < 0 || arguments.peer >= communicator.rankCount())) {
    return invalidArgument("{} is {}; with {} ranks it must be 0 to {}",
                           isTransfer ? "peer" : "root", arguments.peer, communicator.rankCount(),
                           communicator.rankCount() - 1);
  }
  TUTTI_TRY(checkCount(arguments, communicator.rankCount()));
  if (arguments.count == 0) return {};
  if (arguments.input == nullptr && usesInput(arguments, communicator))
    return checkPointer(arguments.input, "sendbuff");
  if (arguments.output == nullptr && usesOutput(arguments, communicator))
    return checkPointer(arguments.output, "recvbuff");
  return {};
}

// Built-in operations, and the communicator's own.
Status resolveOperation(const Arguments& arguments, Communicator& communicator,
                        launch::Call& call) {
  if (!isReduction(arguments.collective)) return {};
  const auto number = rawValue(arguments.op);
  if (number >= 0 && number < comm::UserOps::kFirstNumber) {
    call.shape.op = static_cast<ReduceOp>(number);
    return {};
  }
  TUTTI_TRY_ASSIGN(const comm::UserOp op, communicator.userOps().find(number));
  if (op.type != call.shape.type) {
    return invalidArgument("operation {} was made for {}, this call's datatype is {}", number,
                           name(op.type), name(call.shape.type));
  }
  call.shape.op = ReduceOp::kPreMulSum;
  call.preScale = op.scalar;
  call.preScaleAddress = op.scalarAddress;
  return {};
}

observe::CallKind kindOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter: return observe::CallKind::kReduction;
    case Collective::kReduce: return observe::CallKind::kRootedReduction;
    case Collective::kAllGather:
    case Collective::kAllToAll: return observe::CallKind::kMove;
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kScatter: return observe::CallKind::kRootedMove;
    case Collective::kSend:
    case Collective::kRecv: return observe::CallKind::kTransfer;
  }
  return observe::CallKind::kMove;
}

// Before the arguments are checked.
CallNote noteOf(const Arguments& arguments, const Communicator* communicator) {
  CallNote note = api::noteOf(communicator);
  note.kind = kindOf(arguments.collective);
  const int type = rawValue(arguments.type);
  const bool isType = type >= 0 && type < kDataTypeCount;
  note.payload.bytes = isType ? arguments.count * sizeOf(static_cast<DataType>(type)) : 0;
  note.payload.count = arguments.count;
  note.payload.type = type;
  note.payload.op = rawValue(arguments.op);
  note.payload.peer = arguments.peer;
  return note;
}

// Of numbers that fit.
plan::CallShape shapeOf(const Arguments& arguments) {
  return {.collective = arguments.collective,
          .type = static_cast<DataType>(rawValue(arguments.type)),
          .op = static_cast<ReduceOp>(rawValue(arguments.op)),
          .peer = Rank{arguments.peer},
          .count = arguments.count};
}

launch::Launcher::Repeat repeatOf(const Arguments& arguments) {
  return {.kind = launch::kindOf(shapeOf(arguments)),
          .count = arguments.count,
          .input = arguments.input,
          .output = arguments.output};
}

// Whether the call can go by what is known of its shape, if there was one before: it has buffers,
// and numbers that are no other's when they are cut to bytes.
bool mayRunAgain(const Arguments& arguments, const Communicator& communicator) {
  constexpr int kByte = 0xff;
  const bool hasInput = arguments.input != nullptr || arguments.collective == Collective::kRecv;
  const bool hasOutput = arguments.output != nullptr || arguments.collective == Collective::kSend;
  return arguments.stream == nullptr && hasInput && hasOutput &&
         (rawValue(arguments.type) & ~kByte) == 0 &&
         static_cast<unsigned>(rawValue(arguments.op)) < comm::UserOps::kFirstNumber &&
         communicator.runsInCalls() && !group::Group::isOpen();
}

ncclResult_t submit(std::string_view function, ncclComm_t comm, const Arguments& arguments) {
  const auto note = [&](const Communicator* communicator) {
    return noteOf(arguments, communicator);
  };
  return abiPinnedCall(function, comm, note, [&](const Pin& communicator) -> Status {
    using enum launch::Launcher::Ran;
    if (mayRunAgain(arguments, *communicator)) [[likely]] {
      const auto [ran, rest] = communicator->launcher().runAgain(
          repeatOf(arguments), communicator->device().looksBeforeEnqueue());
      if (ran == kDone) [[likely]]
        return {};
      if (ran == kGoesOn) return group::goOn(*communicator, nullptr, *rest);
    }
    TUTTI_TRY(communicator->checkReady());
    TUTTI_TRY(checkArguments(arguments, *communicator));
    launch::Call call{
        .shape = shapeOf(arguments), .input = arguments.input, .output = arguments.output};
    TUTTI_TRY(resolveOperation(arguments, *communicator, call));
    if (communicator->checksBuffers()) [[unlikely]]
      TUTTI_TRY(checkBuffers(call, *communicator));
    if (!group::Group::isOpen()) return group::runAlone(*communicator, call, arguments.stream);
    return group::Group::current().add(
        {.communicator = communicator.share(), .call = call, .stream = arguments.stream});
  });
}

}  // namespace
}  // namespace tutti::api

using tutti::Collective;
using tutti::api::submit;

TUTTI_EXPORT ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
  return submit("ncclAllReduce", comm,
                {.collective = Collective::kAllReduce,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .op = op,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclAllReduce);

TUTTI_EXPORT ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclRedOp_t op, int root,
                                      ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclReduce", comm,
                {.collective = Collective::kReduce,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .op = op,
                 .peer = root,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclReduce);

TUTTI_EXPORT ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                             ncclDataType_t datatype, ncclRedOp_t op,
                                             ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclReduceScatter", comm,
                {.collective = Collective::kReduceScatter,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = recvcount,
                 .type = datatype,
                 .op = op,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclReduceScatter);

TUTTI_EXPORT ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                         ncclDataType_t datatype, ncclComm_t comm,
                                         cudaStream_t stream) {
  return submit("ncclAllGather", comm,
                {.collective = Collective::kAllGather,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = sendcount,
                 .type = datatype,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclAllGather);

TUTTI_EXPORT ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                         ncclDataType_t datatype, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  return submit("ncclBroadcast", comm,
                {.collective = Collective::kBroadcast,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .peer = root,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclBroadcast);

TUTTI_EXPORT ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclBcast", comm,
                {.collective = Collective::kBroadcast,
                 .input = buff,
                 .output = buff,
                 .count = count,
                 .type = datatype,
                 .peer = root,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclBcast);

TUTTI_EXPORT ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                        ncclDataType_t datatype, ncclComm_t comm,
                                        cudaStream_t stream) {
  return submit("ncclAlltoAll", comm,
                {.collective = Collective::kAllToAll,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclAlltoAll);

TUTTI_EXPORT ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, int root, ncclComm_t comm,
                                      cudaStream_t stream) {
  return submit("ncclGather", comm,
                {.collective = Collective::kGather,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .peer = root,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclGather);

TUTTI_EXPORT ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  return submit("ncclScatter", comm,
                {.collective = Collective::kScatter,
                 .input = sendbuff,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .peer = root,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclScatter);

TUTTI_EXPORT ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype,
                                    int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclSend", comm,
                {.collective = Collective::kSend,
                 .input = sendbuff,
                 .count = count,
                 .type = datatype,
                 .peer = peer,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclSend);

TUTTI_EXPORT ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclRecv", comm,
                {.collective = Collective::kRecv,
                 .output = recvbuff,
                 .count = count,
                 .type = datatype,
                 .peer = peer,
                 .stream = stream});
}
TUTTI_WEAK_TWIN(ncclRecv);
