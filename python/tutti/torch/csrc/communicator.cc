#include "communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti::pytorch {
namespace {

std::string hereKey(const Communicator::Meeting& meeting, int rank) {
  return meeting.prefix + "/here/" + std::to_string(rank);
}

// Rank 0 makes the id when everybody is here, so that nobody waits in the library for those who are
// late.
void awaitOthers(c10d::Store& store, const Communicator::Meeting& meeting) {
  std::vector<int> missing;
  for (int rank = 1; rank < meeting.size; ++rank) missing.push_back(rank);
  const auto areAllHere = [&] {
    std::erase_if(missing, [&](int rank) { return store.check({hereKey(meeting, rank)}); });
    return missing.empty();
  };
  if (pollUntil(areAllHere, meeting.timeout, meeting.signals)) return;
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  throw std::runtime_error("rank 0 of " + std::to_string(meeting.size) + " waited " +
                           std::to_string(meeting.timeout.count()) +
                           "ms for the process group, to which ranks " + names +
                           " did not come (timeout of init_process_group or new_group)");
}

}  // namespace

std::vector<uint8_t> bytesOf(const std::string& text) { return {text.begin(), text.end()}; }

bool pollUntil(const std::function<bool()>& isThere, Milliseconds timeout, SignalCheck signals) {
  const Instant end = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::microseconds(200);
  for (;;) {
    if (isThere()) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    if (signals != nullptr && isMainThread()) signals();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, std::chrono::microseconds(20'000));
  }
}

std::string Communicator::makeId(const Library& library) {
  ncclUniqueId id;
  library.check(library.getUniqueId(&id), "making a communicator's id");
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<Communicator> Communicator::join(std::shared_ptr<const Library> library,
                                                 const std::string& id, int rank, int size) {
  ncclUniqueId value;
  if (id.size() != sizeof value.internal) {
    throw std::runtime_error("the store holds a communicator's id of " + std::to_string(id.size()) +
                             " bytes, wanted " + std::to_string(sizeof value.internal));
  }
  std::memcpy(value.internal, id.data(), id.size());
  ncclComm_t handle = nullptr;
  library->check(
      library->commInitRank(&handle, size, value, rank),
      "rank " + std::to_string(rank) + " of " + std::to_string(size) + " joins the process group");
  return std::unique_ptr<Communicator>(new Communicator(std::move(library), handle));
}

std::unique_ptr<Communicator> Communicator::meet(std::shared_ptr<const Library> library,
                                                 c10d::Store& store, const Meeting& meeting) {
  const std::string idKey = meeting.prefix + "/id";
  std::string id;
  if (meeting.rank == 0) {
    awaitOthers(store, meeting);
    id = makeId(*library);
    store.set(idKey, bytesOf(id));
  } else {
    store.set(hereKey(meeting, meeting.rank), bytesOf("1"));
    if (!pollUntil([&] { return store.check({idKey}); }, meeting.timeout, meeting.signals)) {
      throw std::runtime_error(
          "rank " + std::to_string(meeting.rank) + " of " + std::to_string(meeting.size) +
          " waited " + std::to_string(meeting.timeout.count()) +
          "ms for the process group's rank 0, which did not come or waits for others (timeout of "
          "init_process_group or new_group)");
    }
    const std::vector<uint8_t> bytes = store.get(idKey);
    id.assign(bytes.begin(), bytes.end());
  }
  return join(std::move(library), id, meeting.rank, meeting.size);
}

Communicator::Communicator(std::shared_ptr<const Library> library, ncclComm_t handle)
    : library_(std::move(library)), process_(::getpid()), handle_(handle) {}

Communicator::~Communicator() {
  ncclComm_t handle = handle_.exchange(nullptr, std::memory_order_acq_rel);
  if (handle != nullptr && process_ == ::getpid()) library_->commDestroy(handle);
}

void Communicator::abort() {
  ncclComm_t handle = handle_.exchange(nullptr, std::memory_order_acq_rel);
  if (handle != nullptr && process_ == ::getpid()) library_->commAbort(handle);
}

}  // namespace tutti::pytorch
