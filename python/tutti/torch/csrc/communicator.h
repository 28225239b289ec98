// Membership of a tutti communicator of CPU ranks, which meet through torch's store.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "library.h"
#include "operation.h"

namespace tutti::pytorch {

// As a store keeps it.
std::vector<uint8_t> bytesOf(const std::string& text);

// Waits until `isThere` holds, asking ever less often, for at most `timeout`. False when the time
// is up. A store's own waiting calls keep everybody else of the process from the store meanwhile.
bool pollUntil(const std::function<bool()>& isThere, Milliseconds timeout, SignalCheck signals);

class Communicator {
 public:
  struct Meeting {
    std::string prefix;  // of the store's keys, the same on all ranks, used once
    int rank = 0;
    int size = 1;
    Milliseconds timeout{0};
    SignalCheck signals = nullptr;
  };
  // Returns when all ranks have come; throws with the numbers of those that have not. The id, which
  // holds the communicator's secret, goes through the store: whoever can read that can join.
  static std::unique_ptr<Communicator> meet(std::shared_ptr<const Library> library,
                                            c10d::Store& store, const Meeting& meeting);
  // With an id that all ranks have, and who are all here.
  static std::unique_ptr<Communicator> join(std::shared_ptr<const Library> library,
                                            const std::string& id, int rank, int size);
  static std::string makeId(const Library& library);

  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ncclComm_t handle() const { return handle_.load(std::memory_order_acquire); }
  const Library& library() const { return *library_; }
  // Ends what runs, in other threads, too; peers get an error. Once is enough; any thread.
  void abort();

 private:
  Communicator(std::shared_ptr<const Library> library, ncclComm_t handle);

  const std::shared_ptr<const Library> library_;
  const int process_;  // a fork has no right to end it
  std::atomic<ncclComm_t> handle_;
};

}  // namespace tutti::pytorch
