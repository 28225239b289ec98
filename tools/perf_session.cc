#include "tools/perf_session.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tools/perf_check.h"
#include "tools/perf_values.h"
#include "tutti/host.h"

namespace tutti::tools {
namespace {

static_assert(sizeof(ncclUniqueId) == kIdBytes);

ncclDataType_t libraryType(DataType type) {
  return static_cast<ncclDataType_t>(type);  // wire/types.h has NCCL's numbers
}

Status check(const char* name, ncclResult_t result, ncclComm_t comm) {
  return result == ncclSuccess ? Status() : libraryError(name, result, comm);
}

const char* callName(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce: return "ncclAllReduce";
    case Operation::kAllGather: return "ncclAllGather";
    case Operation::kReduceScatter: return "ncclReduceScatter";
    case Operation::kBroadcast: return "ncclBroadcast";
    case Operation::kReduce: return "ncclReduce";
    case Operation::kAllToAll: return "ncclAlltoAll";
    case Operation::kGather: return "ncclGather";
    case Operation::kScatter: return "ncclScatter";
    case Operation::kSendRecv: return "ncclSend and ncclRecv";
  }
  return "?";
}

}  // namespace

Status libraryError(const char* call, ncclResult_t result, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  const bool hasDetail = detail != nullptr && *detail != '\0';
  return Status(static_cast<Code>(result),
                fmt::format("{}: {}{}{}", call, ncclGetErrorString(result), hasDetail ? ": " : "",
                            hasDetail ? detail : ""));
}

Result<IdBytes> makeId() {
  ncclUniqueId id;
  TUTTI_TRY(check("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr));
  IdBytes bytes;
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return bytes;
}

Result<int> libraryVersion() {
  int version = 0;
  TUTTI_TRY(check("ncclGetVersion", ncclGetVersion(&version), nullptr));
  return int{version};
}

Result<std::unique_ptr<Session>> Session::open(const PerfOptions& options, const Place& place,
                                               const IdBytes& id) {
  std::unique_ptr<Session> session(new Session(options, place));
  ncclUniqueId unique;
  std::memcpy(unique.internal, id.data(), id.size());
  TUTTI_TRY(check("ncclCommInitRank",
                  ncclCommInitRank(&session->comm_, place.rankCount, unique, place.rank), nullptr));
  if (options.hostStream) {
    TUTTI_TRY(
        check("ncclTuttiStreamCreate", ncclTuttiStreamCreate(&session->stream_), session->comm_));
  }
  return session;
}

Session::~Session() {
  release();
  if (comm_ != nullptr) ncclCommAbort(comm_);
  if (stream_ != nullptr) ncclTuttiStreamDestroy(stream_);
}

Status Session::close() {
  release();
  ncclComm_t comm = std::exchange(comm_, nullptr);
  return check("ncclCommDestroy", ncclCommDestroy(comm), nullptr);
}

Status Session::allocate(size_t maxBytes, size_t misalignBytes) {
  static_assert(kGuardBytes == Buffer::kGuard);
  const size_t bytes = roundUp(maxBytes + misalignBytes, kGuardBytes) + 2 * kGuardBytes;
  for (Buffer* buffer : {&send_, &recv_}) {
    TUTTI_TRY(allocateOne(*buffer, bytes));
    buffer->shift_ = misalignBytes;
  }
  return {};
}

Status Session::allocateOne(Buffer& buffer, size_t bytes) {
  void* memory = nullptr;
  if (options_.registration == Registration::kNone) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return systemError("mmap", fmt::format("a buffer of {} bytes", bytes), errno);
    }
  } else {
    TUTTI_TRY(check("ncclMemAlloc", ncclMemAlloc(&memory, bytes), comm_));
  }
  buffer.base_ = static_cast<std::byte*>(memory);
  buffer.bytes_ = bytes;
  switch (options_.registration) {
    case Registration::kNone: return {};
    case Registration::kRegister:
      return check("ncclCommRegister", ncclCommRegister(comm_, memory, bytes, &buffer.handle_),
                   comm_);
    case Registration::kWindow:
      return check(
          "ncclCommWindowRegister",
          ncclCommWindowRegister(comm_, memory, bytes, &buffer.window_, NCCL_WIN_COLL_SYMMETRIC),
          comm_);
  }
  return {};
}

void Session::release() {
  releaseOne(send_);
  releaseOne(recv_);
}

// Failures here change nothing that was measured, and the memory goes back with the process.
void Session::releaseOne(Buffer& buffer) {
  if (buffer.window_ != nullptr) ncclCommWindowDeregister(comm_, std::exchange(buffer.window_, {}));
  if (buffer.handle_ != nullptr) ncclCommDeregister(comm_, std::exchange(buffer.handle_, nullptr));
  if (buffer.base_ == nullptr) return;
  if (options_.registration == Registration::kNone) {
    ::munmap(buffer.base_, buffer.bytes_);
  } else {
    ncclMemFree(buffer.base_);
  }
  buffer.base_ = nullptr;
  buffer.bytes_ = 0;
  buffer.shift_ = 0;
}

ncclResult_t Session::callSendRecv(const Invocation& invocation) {
  const int next = (place_.rank + 1) % place_.rankCount;
  const int previous = (place_.rank + place_.rankCount - 1) % place_.rankCount;
  const ncclDataType_t type = libraryType(invocation.type);
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  const ncclResult_t sent = ncclSend(invocation.send, invocation.count, type, next, comm_, stream_);
  const ncclResult_t received =
      ncclRecv(invocation.recv, invocation.count, type, previous, comm_, stream_);
  result = ncclGroupEnd();
  if (sent != ncclSuccess) return sent;
  return received != ncclSuccess ? received : result;
}

ncclResult_t Session::call(const Invocation& invocation) {
  const void* send = invocation.send;
  void* recv = invocation.recv;
  const size_t count = invocation.count;
  const ncclDataType_t type = libraryType(invocation.type);
  const int root = invocation.root;
  switch (invocation.operation) {
    case Operation::kAllReduce:
      return ncclAllReduce(send, recv, count, type, invocation.op, comm_, stream_);
    case Operation::kAllGather: return ncclAllGather(send, recv, count, type, comm_, stream_);
    case Operation::kReduceScatter:
      return ncclReduceScatter(send, recv, count, type, invocation.op, comm_, stream_);
    case Operation::kBroadcast: return ncclBroadcast(send, recv, count, type, root, comm_, stream_);
    case Operation::kReduce:
      return ncclReduce(send, recv, count, type, invocation.op, root, comm_, stream_);
    case Operation::kAllToAll: return ncclAlltoAll(send, recv, count, type, comm_, stream_);
    case Operation::kGather: return ncclGather(send, recv, count, type, root, comm_, stream_);
    case Operation::kScatter: return ncclScatter(send, recv, count, type, root, comm_, stream_);
    case Operation::kSendRecv: return callSendRecv(invocation);
  }
  return ncclInvalidArgument;
}

Status Session::start(const Invocation& invocation, int repeats) {
  const char* name = callName(invocation.operation);
  if (repeats == 1) return check(name, call(invocation), comm_);
  TUTTI_TRY(check("ncclGroupStart", ncclGroupStart(), comm_));
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < repeats && result == ncclSuccess; ++i) result = call(invocation);
  const ncclResult_t ended = ncclGroupEnd();
  TUTTI_TRY(check(name, result, comm_));
  return check("ncclGroupEnd", ended, comm_);
}

Status Session::finish() {
  if (stream_ == nullptr) return {};
  TUTTI_TRY(check("ncclTuttiStreamSynchronize", ncclTuttiStreamSynchronize(stream_), comm_));
  ncclResult_t asynchronous = ncclSuccess;
  TUTTI_TRY(check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &asynchronous), comm_));
  return check("the communicator", asynchronous, comm_);
}

Result<ncclRedOp_t> Session::openOp(ReduceOp op, DataType type, int scalar) {
  if (op != ReduceOp::kPreMulSum) return static_cast<ncclRedOp_t>(op);
  unsigned char element[8] = {};
  storeElement(type, scalar, element);
  ncclRedOp_t number = ncclSum;
  TUTTI_TRY(check(
      "ncclRedOpCreatePreMulSum",
      ncclRedOpCreatePreMulSum(&number, element, libraryType(type), ncclScalarHostImmediate, comm_),
      comm_));
  return ncclRedOp_t{number};
}

Status Session::closeOp(ReduceOp op, ncclRedOp_t number) {
  if (op != ReduceOp::kPreMulSum) return {};
  return check("ncclRedOpDestroy", ncclRedOpDestroy(number, comm_), comm_);
}

Result<std::vector<std::byte>> Session::gather(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(place_.rankCount));
  TUTTI_TRY(check("ncclAllGather",
                  ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, comm_, stream_),
                  comm_));
  TUTTI_TRY(finish());
  return all;
}

}  // namespace tutti::tools
