// StreamOrder: the calls of one communicator run one after another, whatever streams they are
// called on. On one stream they do so anyhow; a call on another stream first waits for the last
// one's event.
//
// Nobody tells where and when a graph runs. So once calls have been captured there is an event that
// every graph waits for before the first of its calls and records behind the last, and every other
// call waits for and records, whatever its stream: two nodes a graph, however many calls it has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/accelerator.h"
#include "launch/call.h"

namespace tutti::launch {

// Serialised by its owner. Allocates nothing once it is open, but for captures, and never waits
// itself.
class StreamOrder {
 public:
  // `mixesGraphs`: graphs keep the order with other calls and graphs; else the program orders
  // their runs (NCCL_GRAPH_MIXING_SUPPORT=0).
  StreamOrder(device::Accelerator& accelerator, bool mixesGraphs)
      : accelerator_(accelerator), mixesGraphs_(mixesGraphs) {}
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;
  // `ownStream`: where all calls outside of captures go; null: anywhere.
  Status open(void* ownStream);

  // The group's calls will run on `stream`: after those before, and after what is on the other
  // streams of the group. `isBusy`: something may still run.
  Status begin(std::span<const StreamCall> calls, void* stream, const device::Capture& capture,
               bool isBusy);
  // They are on the stream.
  Status end(void* stream, const device::Capture& capture);
  // Between begin() and end(): what is put on the stream next is in the order of another
  // communicator's graphs, too, as eventOfGraphs() of that one has it.
  Status joinOrder(const std::shared_ptr<device::Event>& other, void* stream,
                   const device::Capture& capture);
  // The group's other streams wait for them.
  Status join(std::span<const StreamCall> calls, void* stream, const device::Capture& capture);

  // Reached by all that was called outside of captures. An event that cannot be asked (a broken
  // context, the end of the process) holds up nobody.
  bool isTailReached() const;
  // Of the last end(). Shared with whoever makes a stream wait for it without asking the owner.
  using Event = std::shared_ptr<device::Event>;
  const Event& tail() const { return tail_; }
  // The same of the capture's. REQUIRES: it had one.
  const Event& tailOf(const device::Capture& capture) { return find(capture)->tail; }
  // Where the last calls outside of captures are.
  uint64_t lastStream() const { return lastStream_; }
  bool hasCaptured() const { return hasCaptured_; }
  // Between begin() and end() of the first calls of a capture: what is on the stream before them
  // is no kernel alone.
  bool beginsGraph() const { return beginsGraph_; }

  // Shared with every graph that holds calls, until the last of them is gone.
  const std::shared_ptr<const void>& graphs() const { return graphs_; }
  bool isInGraphs() const { return graphs_.use_count() > 1; }
  // What they wait for and record; null: nothing.
  const Event& eventOfGraphs() const { return mixed_; }
  // What they wait for and record of other communicators.
  const std::vector<Event>& otherOrders() const { return others_; }

 private:
  struct Other {
    Event event;
    device::RecordInGraph record{};
  };
  // That calls have become part of.
  struct Graph {
    uint64_t capture = 0;           // its id
    std::weak_ptr<const void> own;  // gone with the graph
    void* stream = nullptr;         // of the last call
    Event tail;                     // after that call; null: there is none yet
    device::RecordInGraph record;   // of mixed_
    std::vector<Other> others{};
  };
  Result<Event> makeEvent();
  Status beginNow(void* stream, bool isBusy);
  Status beginCaptured(void* stream, const device::Capture& capture, bool isBusy);
  Status beginMixing(bool isBusy);
  Status recordBehindTail(device::Event* event);
  Graph* find(const device::Capture& capture);

  device::Accelerator& accelerator_;
  const bool mixesGraphs_;
  void* ownStream_ = nullptr;
  Event tail_;                     // after the last call outside of captures
  device::Event* join_ = nullptr;  // for the other streams of a group, used up at once
  // Of the last call outside of captures: by id, since a stream may go and another get its handle.
  uint64_t lastStream_ = 0;
  bool hasCaptured_ = false;
  bool beginsGraph_ = false;
  Event mixed_;                  // after the last call of all; null until one is captured, if ever
  std::vector<Graph> captured_;  // newest last
  std::vector<Event> others_;    // that graphs have joined the order of
  std::vector<Event> joined_;    // that calls outside of captures have, since begin()
  std::shared_ptr<const void> graphs_ = std::make_shared<char>();
};

}  // namespace tutti::launch
