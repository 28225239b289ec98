// A rank's links to and from a network that reduces: each message that the rank sends is reduced
// with those of the group's other members, and the result comes back in its place.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "net/held_group.h"
#include "transport/transport.h"
#include "wire/types.h"

namespace tutti::transport {

// Moves both links, on a thread of the network's, since that may never return from a call. Used by
// the thread that drives the rank's operations.
class Reducer : public Motor {
 public:
  // What the next messages are for: all-reduce, where each is reduced with the other members';
  // all-gather, where each brings those of the other members, in their order; or reduce-scatter,
  // where one for each member, in their order, brings the fold of what all have for this one.
  // What they hold, and how it is reduced: sum, product, maximum or minimum.
  virtual void begin(Collective collective, DataType type, ReduceOp op) = 0;
  // Messages are with the network, or wait for it to take them.
  virtual bool isBusy() const = 0;
  // So many reductions have been handed in since the beginning: as many on all members, in the end.
  virtual uint64_t postedCount() const = 0;
  // Where the network's thread stands. Two looks that find it in a call and in the same round found
  // it in the same call. Any thread.
  struct Stand {
    uint64_t rounds = 0;
    const char* call = nullptr;  // the library's function; null: in none
  };
  virtual Stand stand() const = 0;
};

// The outgoing end has the reducer for its motor, the other one none.
struct ReducerLinks {
  std::unique_ptr<LinkEnd> outgoing;
  std::unique_ptr<LinkEnd> incoming;
  Reducer* reducer = nullptr;  // lives as long as both ends
};

struct ReducerOptions {
  std::unique_ptr<tutti::net::HeldGroup> group;
  std::chrono::milliseconds patience{0};  // of what makes the links
  size_t maxBytes = 0;                    // of one reduction: longer messages are cut
  size_t setBytes = 0;  // of an all-gather's or reduce-scatter's messages of all members at a time
  size_t memberCount = 0;
  size_t self = 0;  // this one's place among them
  wire::LinkGeometry geometry{};
};

}  // namespace tutti::transport
