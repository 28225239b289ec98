// The two ends of a message that both copy (wire/joint_copy.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/futex.h"
#include "base/status.h"
#include "kernels/crew.h"
#include "wire/link.h"

namespace tutti::kernels {

// The receiver's part of one message.
class JointReceive {
 public:
  // Says where the message is wanted that `port` waits for, so that its sender may divide it.
  static void offer(wire::LinkPort& port, uint32_t bytes, uint32_t signature, std::byte* to,
                    const wire::SharedSegment& segment);

  // Of the message that is there, whose content is at `from`: in the sender's process, or mapped
  // here. From here on the sender may write to `to`, which lies in `segment` if that has a serial.
  // `streams`: past the caches, where it is mapped.
  void open(wire::LinkPort& port, const std::byte* from, std::byte* to,
            const wire::SharedSegment& segment = {}, bool streams = false);
  bool isOpen() const { return joint_ != nullptr; }
  // The sender may write `to` of the message behind those that are open, too, which is there: it
  // need not wait while this one is copied. It has to be opened in its turn.
  void openAhead(std::byte* to, const wire::SharedSegment& segment);
  // How many are open behind that one.
  uint64_t ahead() const { return ahead_; }

  // Reads the blocks that the sender has not taken, with a crew's help where there is one. kDone
  // when all is there, with which this closes; kIdle while the sender writes.
  Result<Progress> poll(Crew* crew = nullptr);
  // The sender is through with what it took.
  bool isAnswered() const;
  FutexPoint wait() const;

  // Of a call that fails: the sender takes no more blocks. Those that it has taken it writes yet,
  // and is waited for as long as `mayWait` says, which is asked again and again and paces itself:
  // where that gives up, it may write when it goes on.
  void withdraw(const std::function<bool()>& mayWait);

 private:
  Status read(const wire::JointBlock& block, Crew* crew);
  static void withdraw(wire::JointCopy& joint, const std::function<bool()>& mayWait);
  void tell(uint64_t number, std::byte* to, const wire::SharedSegment& segment);
  Status readBlocks(Crew* crew, uint64_t* nanoseconds);

  wire::LinkPort* port_ = nullptr;
  wire::JointCopy* joint_ = nullptr;
  size_t bytes_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  bool isMapped_ = false;  // plain memory of this process
  bool streams_ = false;
  bool isDivided_ = false;
  size_t divided_ = 0;         // then the sender's part
  wire::JointPace::Part own_;  // what this side has taken
  uint64_t ahead_ = 0;         // messages
};

// The sender's part of one message that it divides: that which lies in front.
class JointSend {
 public:
  // Of the next message, whose content is at `from`: whether it is offered a place, which from now
  // on, until write() is through, the sender may write to.
  JointSend() = default;
  JointSend(wire::LinkPort& port, const std::byte* from, uint32_t bytes, uint32_t signature,
            wire::MessageKind kind);
  uint32_t flags() const { return bytes_ > 0 ? wire::kIsDivided : 0; }
  // Once that message is published.
  void write(wire::LinkPort& port, bool streams = false, Crew* crew = nullptr);

 private:
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  bool isMapped_ = false;
  size_t bytes_ = 0;  // none: it is not divided
};

// The sender's part of others: writes a block of the message that the receiver is at. False: it is
// no joint one, the receiver has not come to it, no block is left, or its memory cannot be written.
bool helpReceiver(wire::LinkPort& port, bool streams = false, Crew* crew = nullptr);

}  // namespace tutti::kernels
