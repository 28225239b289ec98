// Why one direction of a connection is over. Several threads may find out at once.
#pragma once

#include <atomic>
#include <utility>

#include "base/status.h"

namespace tutti::net::socket {

// Any thread. The first that is set stays.
class FirstFault {
 public:
  void set(Status fault) {
    if (isTaken_.exchange(true, std::memory_order_relaxed)) return;
    status_ = std::move(fault);
    isThere_.store(true, std::memory_order_seq_cst);  // before a look whether it is awaited (Bell)
  }
  bool isThere() const { return isThere_.load(std::memory_order_seq_cst); }
  Status status() const { return isThere() ? status_.clone() : Status(); }

 private:
  std::atomic<bool> isTaken_{false};
  std::atomic<bool> isThere_{false};
  Status status_;  // written once, by who took it, before it is there
};

}  // namespace tutti::net::socket
