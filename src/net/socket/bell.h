// By which threads that move a connection's bytes tell whoever watches it: a descriptor.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/fd.h"

namespace tutti::net::socket {

// Who waits: await(), then a look whether there is something already, and ring() itself if so. Who
// moves: publishes what there is, sequentially consistent, then looks at isAwaited(). Of the two
// announcements one comes first for both, so nothing is missed; a ring too many may come.
class Bell {
 public:
  Bell() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Readable from a ring to the next await(). -1: the system gave none.
  int fd() const { return event_.get(); }
  // One thread at a time.
  void await() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(event_.get(), &count, sizeof count);
    isAwaited_.store(true, std::memory_order_seq_cst);
  }
  // Any thread, as ring().
  bool isAwaited() const { return isAwaited_.load(std::memory_order_seq_cst); }
  // Nothing where nobody awaits it, or it has rung.
  void ring() {
    if (!isAwaited_.exchange(false, std::memory_order_seq_cst)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(event_.get(), &one, sizeof one);
  }

 private:
  const UniqueFd event_;
  std::atomic<bool> isAwaited_{false};
};

}  // namespace tutti::net::socket
