// LinkRegister: the links of a process's communicators, for whoever describes the process without
// its help: the bundle's thread. A rank's own thread comes here when its communicator begins and
// ends, never for a message.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "channel/link_set.h"
#include "observe/link_state.h"

namespace tutti::comm {

// Thread-safe; outlives its entries.
class LinkRegister {
 public:
  // In the register from here to its end. The links outlive it.
  class Entry {
   public:
    Entry(LinkRegister& owner, std::string communicator, int32_t rank,
          const channel::LinkSet& links);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class LinkRegister;
    LinkRegister& owner_;
    const std::string communicator_;
    const int32_t rank_;
    const channel::LinkSet& links_;
  };

  // All links as they are now. Holds up no message; who begins or ends a communicator meanwhile
  // waits for this.
  std::vector<observe::LinkState> look() const;

 private:
  mutable std::mutex mutex_;
  std::vector<const Entry*> entries_;  // guarded by mutex_
};

}  // namespace tutti::comm
