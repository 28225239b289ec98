// Which form the messages of a plan's calls take where the receiver takes either: a copy in a slot,
// or a reference that it reads with process_vm_readv. Found out by trying both on the calls
// themselves, again from time to time.
//
// No rule would do: a system call's price differs between processors, and on one of them (an Intel
// Xeon VM, 2 ranks, all-gather of 64 KiB to 1 MiB, 2026-11-21) references take 0.6 of the time
// where the sender's buffer has been read before, and 1.1 to 1.5 of it where the sender has just
// written it, whose lines must then come out of its cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tutti::launch {

// Used by the thread that drives the communicator's operations. Ranks need not decide alike. They
// try at the same calls, since a collective's are the same on all.
class FormTrial {
 public:
  enum class Form : uint8_t { kCopy, kReference };

  // For the next call.
  Form next();
  // The next call is part of a trial: ended() wants to know how long it took. Asked before next().
  bool isMeasuring() const { return kept_ == 0; }
  // REQUIRES: a call that is measured ends before the next begins, as those of one plan do.
  void ended(Nanoseconds spent);

 private:
  // Forms take turns by windows, the first call of each not counted: it finds the caches, and the
  // other ranks, as the other form left them.
  static constexpr uint32_t kWindow = 4;
  static constexpr uint32_t kTrialCalls = 4 * kWindow;
  // The trial's eight calls in the slower form, up to twice as long, are then 1 % of the time.
  static constexpr uint32_t kKeptCalls = 1000;

  static Form formOf(uint32_t call) {
    return call / kWindow % 2 == 0 ? Form::kCopy : Form::kReference;
  }
  void decide();

  // The shortest two: what came between a call and its end only ever made it longer, and one
  // outlier may be short, where others had run ahead.
  struct Shortest {
    Nanoseconds first = Nanoseconds::max();
    Nanoseconds second = Nanoseconds::max();
    void add(Nanoseconds spent);
  };
  uint32_t call_ = 0;  // of this trial
  uint32_t kept_ = 0;  // calls left until the next
  Form form_ = Form::kCopy;
  std::array<Shortest, 2> shortest_{};  // by form
};

}  // namespace tutti::launch
