// GpuRoom: the multiprocessors of one GPU, as this process's communicators share them.
//
// The blocks of a launch wait for those of other ranks. While those that a call cannot go on
// without have no multiprocessor, because other launches have them all, it stands still; and if
// those launches wait for ranks where it is the other way round, all do for good. So of the
// launches that may be there at once, in whatever order the GPU starts them, each must find room
// beside the others. One that would not, or would take another's, waits for earlier ones, for as
// few as do. Then every call ends where all ranks issue the calls in the same order: the first that
// has not ended finds room on each of them. Where ranks issue them in different orders, what one
// rank does alone cannot help; what has room side by side ends in any order.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/accelerator.h"

namespace tutti::launch {

// Thread-safe. Calls no driver.
class GpuRoom {
 public:
  explicit GpuRoom(uint32_t multiprocessors) : multiprocessors_(multiprocessors) {}
  GpuRoom(const GpuRoom&) = delete;
  GpuRoom& operator=(const GpuRoom&) = delete;

  using Tail = std::shared_ptr<device::Event>;  // shared with those that are about to wait for it
  using Tails = std::vector<Tail>;

  struct Launch {
    uint32_t blocks = 1;
    // So many of its first blocks go on once all ranks have theirs there, and when they end others
    // take their place: 1 where block i waits for the blocks i only.
    uint32_t leastBlocks = 1;
    uint32_t perMultiprocessor = 1;  // of this kernel's alone
    // Where it is ordered by itself, unless it starts early; none: nowhere.
    std::optional<uint64_t> stream{};
    uint64_t capture = 0;  // of which it becomes part; 0: it runs
  };

  // A communicator. Its launches follow each other. Serialised by its owner.
  class Guest {
   public:
    // `tail`: reached after its last launch outside of captures.
    Guest(GpuRoom& room, Tail tail);
    ~Guest();
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    // Counts the launch in, if it fits beside the other guests'.
    bool tryEnter(const Launch& launch);
    // Counts it in. Adds to `before` what the launch has to wait for, and to `orders` those of
    // other guests' graphs, in whose order it has to be: after what is there, and before what
    // comes.
    void enter(const Launch& launch, Tails& before, Tails& orders);
    // The tail has been recorded behind all launches that have entered.
    void settle(uint64_t stream);
    void settleCaptured(uint64_t capture, const Tail& tail);
    // From now on captured launches count for as long as `graphs` is shared with one, as
    // StreamOrder does: a graph runs whenever the program likes. `order`: every replay and every
    // other call waits for it and records it; null: there is no graph.
    void keepGraphs(std::weak_ptr<const void> graphs, Tail order);
    // What has entered so far is what probeReached() will tell of.
    void probe();
    void probeReached();
    // Nothing runs outside of captures.
    void leave();

   private:
    friend class GpuRoom;
    // Of kernels of which a multiprocessor holds 1, 2, 3, 4 or more blocks.
    static constexpr size_t kKinds = 4;
    struct Share {  // the largest of each number, of launches of which one is there at a time
      uint32_t blocks = 0;
      uint32_t leastBlocks = 0;
    };
    using Shares = std::array<Share, kKinds>;

    // What may run at once with others of the same capture, or outside of captures.
    struct Stay {
      uint64_t capture = 0;
      uint64_t turn = 0;  // of the last launch that entered; 0: none
      std::optional<uint64_t> stream{};
      Shares untilProbe{}, sinceProbe{};
      Tail tail{};
      // For the launch that enters now:
      bool isAhead = false;  // has ended when it starts
      Shares shares{};       // both of the above
      Tail order{};          // of the guest's graphs, where they count; null: they do not

      void mergeShares();
      void addShares(const Shares& others);
      bool isEmpty() const;
    };
    Stay& stayOf(uint64_t capture);
    void count(const Launch& launch);

    // Captures that may be under way at once, as StreamOrder's; of more, the eldest is forgotten.
    static constexpr size_t kCaptures = 8;

    GpuRoom& room_;
    // Guarded by the room's mutex.
    Stay running_;
    std::array<Stay, kCaptures> captured_;
    // Of all captures since there was no graph.
    Stay inGraphs_;
    std::weak_ptr<const void> graphs_;
    Tail order_;

    bool hasGraphs() const { return order_ != nullptr && graphs_.use_count() > 1; }
  };

 private:
  using Stay = Guest::Stay;
  // Of twelfths of all multiprocessors.
  using Taken = std::array<uint64_t, Guest::kKinds>;
  static Taken takenBy(const Guest::Shares& shares);
  static size_t kindOf(const Launch& launch);
  static Guest::Shares sharesOf(const Launch& launch);
  void gatherOthers(const Guest& self, const Launch& launch);
  static Stay* stayBeside(Guest& guest, const Launch& launch);
  bool fits(const Launch& launch) const;
  bool hasRoom(const Guest::Shares& shares, const Taken& all) const;
  Stay* eldest() const;

  const uint32_t multiprocessors_;
  std::mutex mutex_;  // guards the fields below
  std::vector<Guest*> guests_;
  std::vector<Stay*> others_;  // of the guest that enters now
  uint64_t turns_ = 0;
};

// Those of a process, by GPU. Thread-safe.
class GpuRooms {
 public:
  GpuRoom& of(const device::Accelerator& gpu);

 private:
  std::mutex mutex_;  // guards rooms_
  std::map<const device::Accelerator*, std::unique_ptr<GpuRoom>> rooms_;
};

}  // namespace tutti::launch
