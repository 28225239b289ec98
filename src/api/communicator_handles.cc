#include "api/communicator_handles.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/futex.h"
#include "comm/process.h"
#include "group/group.h"

namespace tutti::api {

using comm::Communicator;
using comm::Process;

Result<Made> makeCommunicator(Communicator::Options options) {
  Process& process = Process::get();
  TUTTI_TRY(process.checkNotForked());
  if (options.derivation) {
    options.device = &options.derivation->parent->device();
  } else if (options.device == nullptr) {
    TUTTI_TRY_ASSIGN(comm::VirtualCluster * described, process.virtualCluster());
    // A virtual rank is the cluster's of its number, where nobody says another.
    const auto place = described == nullptr ? std::optional<int32_t>() : index(options.rank);
    TUTTI_TRY_ASSIGN(options.device, process.chooseDevice(place));
  }
  Made made;
  made.communicator = std::make_shared<Communicator>(process, std::move(options));
  made.handle = static_cast<ncclComm_t>(process.communicators().insert(made.communicator));
  if (made.handle == nullptr)
    return invalidUsage("this process already has {} communicators",
                        HandleTable<Communicator>::kMaxHandles);
  return made;
}

Result<std::shared_ptr<Communicator>> closeHandle(ncclComm_t handle) {
  Process& process = Process::get();
  TUTTI_TRY(process.checkNotForked());
  std::shared_ptr<Communicator> communicator = process.communicators().remove(handle);
  if (communicator == nullptr) {
    return invalidArgument(
        "comm {} is not a communicator of this process: it was destroyed or aborted before, or "
        "never made",
        static_cast<const void*>(handle));
  }
  return communicator;
}

// A pin lasts as long as a call that runs in its own thread.
void retireHandle(ncclComm_t handle) {
  auto& table = Process::get().communicators();
  int tries = 0;
  while (!table.isUnpinned(handle)) {
    if (tries++ < 64) {
      std::this_thread::yield();
    } else {
      sleepFor(std::chrono::microseconds(100));
    }
  }
  table.retire(handle);
}

namespace {

// Removes a handle that nobody has got, after an error or an exception.
class HandleGuard {
 public:
  explicit HandleGuard(const Made& made) : handle_(made.handle) {}
  ~HandleGuard() {
    if (handle_ == nullptr) return;
    [[maybe_unused]] const auto removed = removeHandle(handle_);
  }
  HandleGuard(const HandleGuard&) = delete;
  HandleGuard& operator=(const HandleGuard&) = delete;
  void keep() { handle_ = nullptr; }

 private:
  ncclComm_t handle_;
};

}  // namespace

Result<std::shared_ptr<Communicator>> removeHandle(ncclComm_t handle) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<Communicator> communicator, closeHandle(handle));
  retireHandle(handle);
  return communicator;
}

Status initialise(const Made& made, ncclComm_t* comm) {
  HandleGuard guard(made);
  Status status = group::Group::current().addInitialisation(made.communicator);
  if (!status.ok() && status.code() != Code::kInProgress) return status;
  guard.keep();
  *comm = made.handle;
  return status;
}

}  // namespace tutti::api
