// Sleeping on memory words, and waking whoever sleeps on them, in this process or another that maps
// them.
//
// The protocol, which loses no wake-up:
//   publisher: word.store(value, seq_cst); wakeIfSleeping(word, sleeper);
//   waiter:    sleeper.fetch_add(1, seq_cst); if (word.load(seq_cst) == seen) sleep;
//   sleeper.fetch_sub(1)
// Every access is sequentially consistent, so of the publisher's store and the waiter's
// announcement one comes first for both: either the publisher sees the sleeper, or the waiter sees
// the new value. `sleeper` is a count, not a flag, because several threads may wait for one word.
// The kernel compares the word once more before it puts the thread to sleep.
//
// Where a word is published millions of times a second and slept on hardly ever, the publisher's
// fence (the wait until its store has left the core, some 50 ns when the line is another core's) is
// moved to the waiter:
//   publisher: word.store(value, release); wakeIfAnnounced(word, sleeper);
//   waiter:    sleeper.fetch_add(1, seq_cst); fenceOthers(); then as above
// fenceOthers() makes every running thread of every process that called allowFences() pass a full
// fence during the call, and a thread that does not run passed one when it stopped. The publisher's
// fence so lies before its store, between store and look, or after both. In the first case its look
// comes after the announcement and sees it; in the others the waiter's look comes after the store
// and sees that. Where the kernel cannot fence, the waiter must not sleep for long.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace tutti {

static_assert(std::endian::native == std::endian::little,
              "the low half of a word is its futex, at the same address");
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

struct FutexPoint {
  std::atomic<uint64_t>* word = nullptr;
  uint64_t seen = 0;  // sleep only while the word's low half is this one's
};

inline constexpr size_t kMaxFutexPoints = 64;  // the kernel takes 128

// No bound: sleep until woken.
inline constexpr Nanoseconds kUnbounded{-1};

enum class Sleep : uint8_t {
  kEnded,        // woken, timed out, interrupted by a signal, or a word differed: look again
  kUnsupported,  // the kernel cannot sleep on several words (before 5.16, or forbidden by a
                 // sandbox); did not sleep
};

// Wakes all threads of all processes that sleep on the word. One syscall.
void wakeAll(std::atomic<uint64_t>& word);

// To be called right after word.store(value, std::memory_order_seq_cst). Costs a load when nobody
// sleeps.
inline void wakeIfSleeping(std::atomic<uint64_t>& word, std::atomic<uint32_t>& sleeper) {
  if (sleeper.load(std::memory_order_seq_cst) != 0) [[unlikely]]
    wakeAll(word);
}

// To be called right after word.store(value, std::memory_order_release). Costs a load when nobody
// sleeps.
inline void wakeIfAnnounced(std::atomic<uint64_t>& word, std::atomic<uint32_t>& sleeper) {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler, too, keeps the order
  if (sleeper.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wakeAll(word);
}

// Lets other processes' and its own threads fence this process's threads; to be called before the
// first wakeIfAnnounced(). Once is enough, more do no harm; the first may take some milliseconds.
void allowFences();

// A full fence on every running thread of the processes that allow it, this one's included; some
// microseconds. False: the kernel has no such thing (before Linux 4.16, or forbidden by a sandbox).
bool fenceOthers();

// Whether fenceOthers() fences this process's threads, from the first call on, which allows it.
bool canFenceOthers();

// Sleeps while the word's low half equals the seen one's, at most `bound`. May end early.
void sleepOn(const FutexPoint& point, Nanoseconds bound);

// Sleeps while all words are as seen, at most `bound`. 1..kMaxFutexPoints points.
Sleep sleepOnAny(std::span<const FutexPoint> points, Nanoseconds bound);

// Sleeps for a time; nobody can wake it.
void sleepFor(Nanoseconds bound);

}  // namespace tutti
