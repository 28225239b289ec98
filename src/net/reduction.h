// Networks that reduce by themselves, as collective-network plug-ins offer them: members of a group
// hand in as many elements each, and each gets the fold of all of them, or its own part of the
// fold, or all of them one after the other. Opened by registry.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "net/requests.h"
#include "wire/types.h"

namespace tutti::net {

// Where a member of a group is to be found; opaque, travels over authenticated channels.
using MemberHandle = std::array<std::byte, 128>;

// One member's end of a group. One thread at a time; nothing is meant to block, but somebody else's
// library may never return: see net/held_group.h. Errors are final, and made, not logged: whoever
// owns the group says what they mean for the call. Members reduce in the same order.
class ReductionGroup {
 public:
  using Memory = MemoryName;
  using Request = net::Request;

  // Before any of its bytes are posted.
  virtual Result<Memory> enroll(std::span<std::byte> memory) = 0;
  virtual void release(Memory memory) = 0;

  struct Reduction {
    // All-reduce; where the network has them, all-gather and reduce-scatter.
    Collective collective = Collective::kAllReduce;
    const std::byte* input = nullptr;  // of a reduce-scatter: so many elements for each member
    std::byte* output = nullptr;       // of an all-gather: so many of each member
    size_t elementCount = 0;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;  // sum, product, maximum or minimum; of no matter to all-gather
    Memory inputMemory{};
    Memory outputMemory{};
  };
  // Begins it. The memory stays untouched until test() is through. No request: not now, ask again.
  virtual Result<Request> post(const Reduction& reduction) = 0;
  // True once: the output is there, and the request is over.
  virtual Result<bool> test(Request request) = 0;

  // The library's function that a post() or test() is in, null between them. Any thread.
  virtual const char* callUnderWay() const = 0;

  virtual ~ReductionGroup() = default;
};

// A member of a group that comes to be.
class ReductionMember {
 public:
  virtual const MemberHandle& handle() const = 0;
  // All members' handles in the same order on all; this one's is at `number`. May take as long as
  // the others do to call it. Null: not yet, ask again.
  virtual Result<std::unique_ptr<ReductionGroup>> connect(std::span<const MemberHandle> members,
                                                          size_t number) = 0;
  virtual ~ReductionMember() = default;
};

// Thread-safe. Outlives its members and groups.
class ReductionNetwork {
 public:
  struct Caps {
    std::string name;           // "SHARP"
    size_t deviceCount = 1;     // network adapters, each of which a group can be made of
    size_t maxBytes = 1 << 30;  // of one reduction, of all members' parts where there are several
    bool gathers = false;       // all-gather
    bool scatters = false;      // reduce-scatter
    std::string description;    // for the log
  };
  virtual const Caps& caps() const = 0;
  virtual Result<bool> supports(DataType type, ReduceOp op) const = 0;
  virtual Result<std::unique_ptr<ReductionMember>> listen(size_t device) = 0;
  virtual ~ReductionNetwork() = default;
};

}  // namespace tutti::net
