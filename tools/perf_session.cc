#include "tools/perf_session.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/perf_check.h"
#include "tools/perf_values.h"

namespace tutti::tools {
namespace {

static_assert(sizeof(ncclUniqueId) == kIdBytes);

ncclDataType_t libraryType(DataType type) {
  return static_cast<ncclDataType_t>(type);  // wire/types.h has NCCL's numbers
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

Result<IdBytes> makeId(const Library& library) {
  ncclUniqueId id;
  TUTTI_TRY(library.check("ncclGetUniqueId", library.getUniqueId(&id), nullptr));
  IdBytes bytes;
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return bytes;
}

Result<int> versionOf(const Library& library) {
  int version = 0;
  TUTTI_TRY(library.check("ncclGetVersion", library.getVersion(&version), nullptr));
  return int{version};
}

GpuPath Session::path() const {
  size_t length = 0;
  if (gpu_ == nullptr || library_.commDump == nullptr) return GpuPath::kUnknown;
  if (library_.commDump(comm_, nullptr, 0, &length) != ncclSuccess) return GpuPath::kUnknown;
  std::string text(length + 1, '\0');
  if (library_.commDump(comm_, text.data(), text.size(), nullptr) != ncclSuccess)
    return GpuPath::kUnknown;
  return text.find("\nthrough host memory\n") == std::string::npos ? GpuPath::kDirect
                                                                   : GpuPath::kThroughHost;
}

Result<std::unique_ptr<Session>> Session::open(const Library& library, const PerfOptions& options,
                                               const Place& place, const IdBytes& id) {
  TUTTI_TRY(library.checkServes(options));
  std::unique_ptr<Session> session(new Session(library, options, place));
  TUTTI_TRY(session->openGpu());
  ncclUniqueId unique;
  std::memcpy(unique.internal, id.data(), id.size());
  TUTTI_TRY(library.check(
      "ncclCommInitRank",
      library.commInitRank(&session->comm_, place.rankCount, unique, place.rank), nullptr));
  if (options.hostStream && session->gpu_ == nullptr) {
    TUTTI_TRY(library.check("ncclTuttiStreamCreate", library.streamCreate(&session->stream_),
                            session->comm_));
  }
  return session;
}

// Whether ranks run on GPUs is the library's decision: it shows in whose memory it gives out.
Status Session::openGpu() {
  if (options_.gpus == PerfOptions::kNoGpus) return {};
  Result<std::unique_ptr<RankGpu>> gpu = RankGpu::open(place_.rank, std::max(options_.gpus, 0));
  if (!gpu.ok()) return options_.gpus == PerfOptions::kAnyGpus ? Status() : gpu.takeStatus();
  gpu_ = std::move(gpu).value();
  void* probe = nullptr;
  TUTTI_TRY(library_.check("ncclMemAlloc", library_.memAlloc(&probe, 1), nullptr));
  const bool isOnGpu = gpu_->isDeviceMemory(probe);
  TUTTI_TRY(library_.check("ncclMemFree", library_.memFree(probe), nullptr));
  if (!isOnGpu) {
    gpu_.reset();
    if (options_.gpus == PerfOptions::kAnyGpus) return {};
    return invalidUsage(
        "GPUs are asked for (-g), but the library runs CPU ranks here: see "
        "TUTTI_DEVICE");
  }
  stream_ = static_cast<cudaStream_t>(gpu_->stream());
  return {};
}

// What an error left on the stream still uses the buffers, and ends with the communicator.
Session::~Session() {
  if (gpu_ != nullptr) gpu_->dropGraph();
  if (ncclComm_t comm = std::exchange(comm_, nullptr); comm != nullptr) library_.commAbort(comm);
  if (gpu_ != nullptr) [[maybe_unused]]
    const Status ended = gpu_->synchronize();
  if (stream_ != nullptr && gpu_ == nullptr) library_.streamDestroy(stream_);
  release();
}

Status Session::close() {
  release();
  ncclComm_t comm = std::exchange(comm_, nullptr);
  return library_.check("ncclCommDestroy", library_.commDestroy(comm), nullptr);
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

Result<std::byte*> Session::allocateHost(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return systemError("mmap", fmt::format("a buffer of {} bytes", bytes), errno);
  return static_cast<std::byte*>(memory);
}

Status Session::allocateOne(Buffer& buffer, size_t bytes) {
  buffer.bytes_ = bytes;
  const bool isOrdinary = options_.registration == Registration::kNone;
  if (gpu_ != nullptr || isOrdinary) {
    TUTTI_TRY_ASSIGN(buffer.base_, allocateHost(bytes));
  }
  if (gpu_ == nullptr && isOrdinary) return {};
  void* memory = nullptr;
  if (isOrdinary) {
    TUTTI_TRY_ASSIGN(memory, gpu_->allocate(bytes));
  } else {
    TUTTI_TRY(library_.check("ncclMemAlloc", library_.memAlloc(&memory, bytes), comm_));
  }
  (gpu_ == nullptr ? buffer.base_ : buffer.device_) = static_cast<std::byte*>(memory);
  return registerBuffer(buffer, memory);
}

Status Session::registerBuffer(Buffer& buffer, void* memory) {
  switch (options_.registration) {
    case Registration::kNone: return {};
    case Registration::kRegister:
      return library_.check("ncclCommRegister",
                            library_.commRegister(comm_, memory, buffer.bytes_, &buffer.handle_),
                            comm_);
    case Registration::kWindow:
      return library_.check("ncclCommWindowRegister",
                            library_.commWindowRegister(comm_, memory, buffer.bytes_,
                                                        &buffer.window_, NCCL_WIN_COLL_SYMMETRIC),
                            comm_);
  }
  return {};
}

Status Session::upload(size_t dataBytes) {
  if (gpu_ == nullptr) return {};
  for (const Buffer* buffer : {&send_, &recv_}) {
    const size_t bytes = std::min(buffer->shift_ + dataBytes + 2 * kGuardBytes, buffer->bytes_);
    TUTTI_TRY(gpu_->copy(buffer->device_, buffer->base_, bytes));
  }
  return {};
}

Status Session::download(size_t dataBytes) {
  if (gpu_ == nullptr) return {};
  for (const Buffer* buffer : {&send_, &recv_}) {
    const size_t bytes = std::min(buffer->shift_ + dataBytes + 2 * kGuardBytes, buffer->bytes_);
    TUTTI_TRY(gpu_->copy(buffer->base_, buffer->device_, bytes));
  }
  return {};
}

// The graph first: it holds calls on the buffers, and NCCL's ncclCommDestroy waits until no graph
// has calls of its communicator.
void Session::release() {
  if (gpu_ != nullptr) gpu_->dropGraph();
  releaseOne(send_);
  releaseOne(recv_);
}

// Failures here change nothing that was measured, and the memory goes back with the process.
void Session::releaseOne(Buffer& buffer) {
  ncclWindow_t window = std::exchange(buffer.window_, {});
  void* handle = std::exchange(buffer.handle_, nullptr);
  if (comm_ != nullptr && window != nullptr) library_.commWindowDeregister(comm_, window);
  if (comm_ != nullptr && handle != nullptr) library_.commDeregister(comm_, handle);
  if (buffer.base_ == nullptr) return;
  const bool isOrdinary = options_.registration == Registration::kNone;
  void* library = gpu_ == nullptr ? buffer.base_ : buffer.device_;
  if (!isOrdinary && library != nullptr) library_.memFree(library);
  if (isOrdinary && gpu_ != nullptr && library != nullptr) gpu_->free(library);
  if (isOrdinary || gpu_ != nullptr) ::munmap(buffer.base_, buffer.bytes_);
  buffer.device_ = nullptr;
  buffer.base_ = nullptr;
  buffer.bytes_ = 0;
  buffer.shift_ = 0;
}

ncclResult_t Session::callSendRecv(const Invocation& invocation) {
  const int next = (place_.rank + 1) % place_.rankCount;
  const int previous = (place_.rank + place_.rankCount - 1) % place_.rankCount;
  const ncclDataType_t type = libraryType(invocation.type);
  ncclResult_t result = library_.groupStart();
  if (result != ncclSuccess) return result;
  const ncclResult_t sent =
      library_.send(invocation.send, invocation.count, type, next, comm_, stream_);
  const ncclResult_t received =
      library_.recv(invocation.recv, invocation.count, type, previous, comm_, stream_);
  result = library_.groupEnd();
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
      return library_.allReduce(send, recv, count, type, invocation.op, comm_, stream_);
    case Operation::kAllGather: return library_.allGather(send, recv, count, type, comm_, stream_);
    case Operation::kReduceScatter:
      return library_.reduceScatter(send, recv, count, type, invocation.op, comm_, stream_);
    case Operation::kBroadcast:
      return library_.broadcast(send, recv, count, type, root, comm_, stream_);
    case Operation::kReduce:
      return library_.reduce(send, recv, count, type, invocation.op, root, comm_, stream_);
    case Operation::kAllToAll: return library_.allToAll(send, recv, count, type, comm_, stream_);
    case Operation::kGather: return library_.gather(send, recv, count, type, root, comm_, stream_);
    case Operation::kScatter:
      return library_.scatter(send, recv, count, type, root, comm_, stream_);
    case Operation::kSendRecv: return callSendRecv(invocation);
  }
  return ncclInvalidArgument;
}

Status Session::start(const Invocation& invocation, int repeats) {
  const char* name = callName(invocation.operation);
  if (repeats == 1) return library_.check(name, call(invocation), comm_);
  TUTTI_TRY(library_.check("ncclGroupStart", library_.groupStart(), comm_));
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < repeats && result == ncclSuccess; ++i) result = call(invocation);
  const ncclResult_t ended = library_.groupEnd();
  TUTTI_TRY(library_.check(name, result, comm_));
  return library_.check("ncclGroupEnd", ended, comm_);
}

Status Session::capture(const Invocation& invocation, int repeats, int iterations) {
  if (gpu_ == nullptr) return invalidUsage("graphs (-G) are of GPU ranks; these are CPU ranks");
  return gpu_->capture([&]() -> Status {
    for (int i = 0; i < iterations; ++i) TUTTI_TRY(start(invocation, repeats));
    return {};
  });
}

Status Session::replay() { return gpu_->replay(); }

Status Session::finish() {
  if (stream_ == nullptr) return {};
  if (gpu_ != nullptr) {
    TUTTI_TRY(gpu_->synchronize());
  } else {
    TUTTI_TRY(
        library_.check("ncclTuttiStreamSynchronize", library_.streamSynchronize(stream_), comm_));
  }
  ncclResult_t asynchronous = ncclSuccess;
  TUTTI_TRY(library_.check("ncclCommGetAsyncError",
                           library_.commGetAsyncError(comm_, &asynchronous), comm_));
  return library_.check("the communicator", asynchronous, comm_);
}

Result<ncclRedOp_t> Session::openOp(ReduceOp op, DataType type, int scalar) {
  if (op != ReduceOp::kPreMulSum) return static_cast<ncclRedOp_t>(op);
  unsigned char element[8] = {};
  storeElement(type, scalar, element);
  ncclRedOp_t number = ncclSum;
  TUTTI_TRY(library_.check("ncclRedOpCreatePreMulSum",
                           library_.redOpCreatePreMulSum(&number, element, libraryType(type),
                                                         ncclScalarHostImmediate, comm_),
                           comm_));
  return ncclRedOp_t{number};
}

Status Session::closeOp(ReduceOp op, ncclRedOp_t number) {
  if (op != ReduceOp::kPreMulSum) return {};
  return library_.check("ncclRedOpDestroy", library_.redOpDestroy(number, comm_), comm_);
}

Result<std::vector<std::byte>> Session::gatherOnGpu(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(place_.rankCount));
  TUTTI_TRY_ASSIGN(void* memory, gpu_->allocate(all.size()));
  std::byte* own = static_cast<std::byte*>(memory) + mine.size() * static_cast<size_t>(place_.rank);
  TUTTI_TRY(gpu_->copy(own, mine.data(), mine.size()));
  TUTTI_TRY(library_.check("ncclAllGather",
                           library_.allGather(own, memory, mine.size(), ncclUint8, comm_, stream_),
                           comm_));
  TUTTI_TRY(finish());
  TUTTI_TRY(gpu_->copy(all.data(), memory, all.size()));
  gpu_->free(memory);
  return all;
}

Result<std::vector<std::byte>> Session::gather(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(place_.rankCount));
  if (gpu_ != nullptr) return gatherOnGpu(mine);
  TUTTI_TRY(library_.check(
      "ncclAllGather",
      library_.allGather(mine.data(), all.data(), mine.size(), ncclUint8, comm_, stream_), comm_));
  TUTTI_TRY(finish());
  return all;
}

}  // namespace tutti::tools
