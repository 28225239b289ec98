// What a pump's messages are told to a profiler as: each belongs to the transfer of the call that
// sent or awaits it. A receiver's may come before its rank has got to that call; they are told
// then.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "observe/profiler.h"

namespace tutti::transport::net {

// Under its pump's mutex. Messages are numbered from 0, come in order, and go in order.
class TransferLog {
 public:
  TransferLog(observe::Profiler& profiler, Clock& clock) : profiler_(profiler), clock_(clock) {}
  ~TransferLog();
  TransferLog(const TransferLog&) = delete;
  TransferLog& operator=(const TransferLog&) = delete;

  // The rank has come to a call whose messages are these.
  void begin(const observe::EventTag& call, const observe::TransferNote& note);

  // A sender's message lies in the ring; of a receiver's the first bytes have come. Told again,
  // nothing.
  void appeared(uint64_t number, uint64_t bytes) { appeared(number, bytes, clock_.now()); }
  // The network has been given it; all of it has come.
  void moved(uint64_t number) { moved(number, clock_.now()); }
  // All messages before this one are through.
  void passed(uint64_t number);
  // The same of a time before.
  void appeared(uint64_t number, uint64_t bytes, Instant at);
  void moved(uint64_t number, Instant at);
  void passed(uint64_t number, Instant at);

 private:
  struct Transfer {
    observe::TransferNote note;
    observe::EventTag tag;
    uint64_t end() const { return note.firstMessage + note.messageCount; }
  };
  struct Message {
    uint64_t number = 0;
    uint64_t bytes = 0;
    Instant appeared{};
    Instant moved{};
    bool hasMoved = false;
    bool isTold = false;
    observe::EventTag tag;
  };
  const Transfer* transferOf(uint64_t number) const;
  void tell(Message& message, const Transfer& transfer);

  observe::Profiler& profiler_;
  Clock& clock_;
  std::deque<Transfer> transfers_;  // by their messages, which follow each other
  std::deque<Message> messages_;    // by number, none left out
};

}  // namespace tutti::transport::net
