// Ranges around the calls of the C interface, for tools that watch a whole program: begin and end
// on the caller's thread, with what the call was about.
#pragma once

#include <cstdint>

namespace tutti::observe {

// Which of a CallPayload's fields a call has. The communicator's are in all but the first and the
// last.
enum class CallKind : uint8_t {
  kPlain,         // none
  kCommunicator,  // of a communicator: its ranks and device
  kMove,          // count elements to or from each rank
  kRootedMove,    // and a root
  kReduction,     // and an operation
  kRootedReduction,
  kTransfer,  // and the other rank
  kMemory,    // bytes alone
};

struct CallPayload {
  uint64_t communicator = 0;  // equal on all its ranks; 0: no communicator was found
  uint64_t bytes = 0;         // of the count's elements: one block, not one a rank
  uint64_t count = 0;
  int32_t rank = 0;
  int32_t rankCount = 0;
  int32_t device = 0;
  int32_t type = 0;  // as the caller gave it: also what is no type
  int32_t op = 0;
  int32_t peer = 0;  // root, or the other rank of a transfer
};

// A tool that listens. Any thread.
class CallRanges {
 public:
  // REQUIRES: `function` ends with a zero byte.
  virtual void begin(const char* function, CallKind kind, const CallPayload& payload) = 0;
  // Of the range that this thread began last.
  virtual void end() = 0;
  virtual ~CallRanges() = default;
};

}  // namespace tutti::observe
