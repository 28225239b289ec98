// Handles for objects that a C caller holds: an index and a generation packed into a pointer-sized
// value, never an address. A stale, foreign or made-up handle is found out by a look-up that
// touches only the table. Look-up takes no lock, and no locked instruction in the first thread that
// looks a slot's handles up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/owner_way.h"

namespace tutti {

template <typename T>
class HandleTable {
  struct Slot {
    // High half: generation, odd while the slot is in use. Low half: pins. Every user of the object
    // adds and takes its pin with acquire-release, so that the remover, which waits for zero pins,
    // sees all they did. A generation wraps after 2^20 reuses of one slot (what the handle can
    // hold). One word, because generation and pins must be checked together.
    std::atomic<uint64_t> state{0};
    OwnerWay way;               // its owner's pins; the gate is the generation
    std::shared_ptr<T> object;  // shared by the table and whoever removed it
    uint32_t nextFree = 0;
  };

 public:
  // A handle's top byte: differs from table to table, and has bit 47 of the value set, which no
  // user-space pointer has.
  explicit HandleTable(uint8_t kind) : kind_(kind | 0x80u) {}

  // Keeps the object from being destroyed while in scope. Empty when the handle is not valid. Of
  // the thread that made it.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept
        : slot_(std::exchange(other.slot_, nullptr)), isOwners_(other.isOwners_) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(slot_, other.slot_);
      std::swap(isOwners_, other.isOwners_);
      return *this;
    }
    ~Pin() {
      if (slot_ == nullptr) return;
      if (isOwners_) {
        slot_->way.leave();
      } else {
        slot_->state.fetch_sub(1, std::memory_order_acq_rel);
      }
    }
    explicit operator bool() const { return slot_ != nullptr; }
    T* operator->() const { return slot_->object.get(); }
    T& operator*() const { return *slot_->object; }
    std::shared_ptr<T> share() const { return slot_->object; }

   private:
    friend class HandleTable;
    Pin(Slot* slot, bool isOwners) : slot_(slot), isOwners_(isOwners) {}
    Slot* slot_ = nullptr;
    bool isOwners_ = false;
  };

  // Returns nullptr when all kMaxHandles are in use.
  void* insert(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    const uint32_t which = takeFree();
    if (which == kNone) return nullptr;
    Slot& slot = slotAt(which);
    slot.object = std::move(object);
    const uint64_t generation = (slot.state.load(std::memory_order_relaxed) >> 32) + 1;
    slot.state.store(generation << 32, std::memory_order_release);
    return pack(which, generation);
  }

  Pin pin(void* handle) {
    Slot* slot = find(handle);
    if (slot == nullptr) return {};
    if (!slot->way.isMine()) return pinAmongOthers(*slot, handle);
    slot->way.enter();
    if (matches(slot->state.load(std::memory_order_acquire), handle)) return Pin(slot, true);
    slot->way.leave();
    return {};
  }

  // Ends the handle: no pin succeeds from here on. Returns the object, which pins may still hold:
  // the caller makes their users finish, then calls retire() with the same handle. Null when the
  // handle was not valid.
  std::shared_ptr<T> remove(void* handle) {
    Slot* slot = find(handle);
    if (slot == nullptr) return nullptr;
    uint64_t state = slot->state.load(std::memory_order_relaxed);
    while (matches(state, handle)) {
      if (slot->state.compare_exchange_weak(state, state + (uint64_t{1} << 32),
                                            std::memory_order_seq_cst)) {
        slot->way.fence();
        return slot->object;
      }
    }
    return nullptr;
  }

  // True once nobody has the removed handle's object pinned.
  bool isUnpinned(void* handle) {
    const Slot* slot = find(handle);
    if (slot == nullptr) return true;
    return (slot->state.load(std::memory_order_acquire) & 0xffffffffu) == 0 &&
           !slot->way.isInside();
  }

  // Returns the removed handle's slot. REQUIRES: isUnpinned(handle).
  void retire(void* handle) {
    std::shared_ptr<T> last;
    std::lock_guard lock(mutex_);
    Slot* slot = find(handle);
    last = std::move(slot->object);
    slot->nextFree = firstFree_;
    firstFree_ = indexOf(handle);
  }

  static constexpr uint32_t kMaxHandles = 1u << 16;

 private:
  static constexpr uint32_t kBlock = 256;
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr uint64_t kGenerationMask = (1u << 20) - 1;
  using Block = std::array<Slot, kBlock>;

  Pin pinAmongOthers(Slot& slot, void* handle) {
    uint64_t state = slot.state.load(std::memory_order_relaxed);
    while (matches(state, handle)) {
      if (!slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      slot.way.tryOwn();
      return Pin(&slot, false);
    }
    return {};
  }
  void* pack(uint32_t which, uint64_t generation) const {
    return reinterpret_cast<void*>((uint64_t{kind_} << 40) |
                                   ((generation & kGenerationMask) << 20) | (uint64_t{which} << 4) |
                                   8u);
  }
  static uint32_t indexOf(void* handle) {
    return static_cast<uint32_t>((reinterpret_cast<uint64_t>(handle) >> 4) & 0xffffu);
  }
  static bool matches(uint64_t state, void* handle) {
    const uint64_t generation = state >> 32;
    return (generation & 1) != 0 &&
           (generation & kGenerationMask) ==
               ((reinterpret_cast<uint64_t>(handle) >> 20) & kGenerationMask);
  }
  Slot* find(void* handle) {
    const auto value = reinterpret_cast<uint64_t>(handle);
    if ((value >> 40) != kind_ || (value & 15u) != 8u) return nullptr;
    Block* block = blocks_[indexOf(handle) / kBlock].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : &(*block)[indexOf(handle) % kBlock];
  }
  Slot& slotAt(uint32_t which) {
    return (*blocks_[which / kBlock].load(std::memory_order_relaxed))[which % kBlock];
  }

  uint32_t takeFree() {
    if (firstFree_ != kNone) {
      const uint32_t which = firstFree_;
      firstFree_ = slotAt(which).nextFree;
      return which;
    }
    if (used_ == kMaxHandles) return kNone;
    if (used_ % kBlock == 0) {
      owned_[used_ / kBlock] = std::make_unique<Block>();
      blocks_[used_ / kBlock].store(owned_[used_ / kBlock].get(), std::memory_order_release);
    }
    return used_++;
  }

  const uint32_t kind_;
  std::mutex mutex_;  // guards the four below
  uint32_t firstFree_ = kNone;
  uint32_t used_ = 0;
  std::array<std::unique_ptr<Block>, kMaxHandles / kBlock> owned_;
  std::array<std::atomic<Block*>, kMaxHandles / kBlock> blocks_{};  // written under mutex_, read by
                                                                    // anyone
};

}  // namespace tutti
