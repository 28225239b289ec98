// StreamOrder: the calls of one communicator run one after another, whatever streams they are
// called on. On one stream they do so anyhow; a call on another stream first waits for the last
// one's event.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/accelerator.h"
#include "launch/call.h"

namespace tutti::launch {

// Serialised by its owner. Allocates nothing once it is open, but an event for a capture, and never
// waits itself.
class StreamOrder {
 public:
  explicit StreamOrder(device::Accelerator& accelerator) : accelerator_(accelerator) {}
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;
  Status open();

  // The group's calls will run on `stream`: after those before, and after what is on the other
  // streams of the group. `isBusy`: something may still run.
  Status begin(std::span<const StreamCall> calls, void* stream, const device::Capture& capture,
               bool isBusy);
  // They are on the stream.
  Status end(void* stream, const device::Capture& capture);
  // The group's other streams wait for them.
  Status join(std::span<const StreamCall> calls, void* stream, const device::Capture& capture);

  // Captures that may be under way at once. Of more, calls on several streams could overlap: nobody
  // tells when one is over, so the one without calls for longest is forgotten.
  static constexpr size_t kCaptures = 8;

  // Reached by all that was called outside of captures. An event that cannot be asked (a broken
  // context, the end of the process) holds up nobody.
  bool isTailReached() const;
  // Of the last end(). Shared with whoever makes a stream wait for it without asking the owner.
  using Event = std::shared_ptr<device::Event>;
  const Event& tail() const { return tail_; }
  // The same of the capture's. REQUIRES: it had one.
  const Event& tailOf(const device::Capture& capture) { return find(capture)->event; }
  // Where the last calls outside of captures are.
  uint64_t lastStream() const { return lastStream_; }
  bool hasCaptured() const { return captureTurns_ != 0; }

 private:
  struct CaptureTail {
    uint64_t id = 0;         // of the capture
    uint64_t turn = 0;       // of its last call; 0: none yet
    void* stream = nullptr;  // of its last call
    Event event;             // after that call
  };
  Result<Event> makeEvent();
  CaptureTail* find(const device::Capture& capture);
  CaptureTail& placeOf(const device::Capture& capture);

  device::Accelerator& accelerator_;
  Event tail_;                     // after the last call outside of captures
  device::Event* join_ = nullptr;  // for the other streams of a group, used up at once
  // Of the last call outside of captures: by id, since a stream may go and another get its handle.
  uint64_t lastStream_ = 0;
  std::array<CaptureTail, kCaptures> captures_{};
  uint64_t captureTurns_ = 0;  // calls that were captured
};

}  // namespace tutti::launch
