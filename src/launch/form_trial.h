// How a plan's calls go, where there is a choice that costs or saves time by the buffers they come
// with: messages as copies in slots, messages as references that the receiver reads in the sender's
// memory, or another algorithm with references. Found out by trying all on the calls themselves,
// again from time to time, and when the answer has become slower than what it beat.
//
// No rule would do. What a reference costs depends on the processor, on how many ranks share a CPU
// (a sender waits for its readers) and on what the caller did before: on an Intel Xeon VM, 2 ranks,
// all-gather of 64 KiB to 1 MiB by process_vm_readv takes 0.6 of the time where the buffer has been
// read before, and 1.1 to 1.5 of it where the sender has just written it, whose lines must then
// come out of its cache (2026-11-21).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tutti::launch {

// Used by the thread that drives the communicator's operations.
//
// Each rank chooses between copies and references for itself, but they try them at the same calls,
// or each would time a mixture. The other algorithm must be all ranks' choice, at the same call. So
// everything that leads there is counted in calls of the plan, which are the same on all ranks, and
// decided by what calls have brought with their messages: whether all ranks agreed. A rank agrees,
// while nothing is tried, when it could refer; in a trial, when that has taken long enough; after
// it, when the other algorithm was the fastest by its clock; while that is used, as long as it
// can refer and its clock doubts nothing; and while another form is kept, when its clock doubts it.
// Where calls do not tell (a send's), each rank goes by its own clock.
class FormTrial {
 public:
  enum class Form : uint8_t { kCopy, kReference, kOther };

  // How a call is to go.
  struct Turn {
    Form form = Form::kReference;
    bool agrees = false;
    bool isMeasured = false;  // ended() needs to know how long it took
  };
  // What came of it.
  struct Outcome {
    bool couldRefer = false;  // all messages that it might be good for
    bool isMapped = true;     // and they name what peers have mapped, where they can
    bool isAgreed = false;    // kernels::Execution::isAgreed()
    bool isLong = false;      // and names memory that peers map
    bool isCopyOnly = false;  // by its buffers, whatever the turn wanted
    Nanoseconds spent{};      // if it was measured
    Instant at{};             // its end, likewise
  };

  FormTrial() = default;
  // REQUIRES: calls tell whether all ranks agree, if there is another algorithm.
  FormTrial(bool hasOther, bool canAgree) : hasOther_(hasOther), canAgree_(canAgree) {}

  Turn next() const;
  // REQUIRES: a call ends before the next begins, as those of one plan do.
  void ended(const Outcome& outcome);

  // Whether it is yet to be seen what calls can do.
  bool isWatching() const { return phase_ == Phase::kWatch; }
  // Whether the next call goes as all ranks' clocks want it, not as this one's.
  bool isTrying() const { return phase_ == Phase::kSettle || phase_ == Phase::kTrial; }
  // Whether calls are to bring copies for a while: then they need no next(), only endedAtOnce().
  bool keepsCopies() const { return phase_ == Phase::kKept && kept_ == Form::kCopy; }
  void endedAtOnce() {
    if (phase_ == Phase::kKept) ended({.couldRefer = true});
  }

 private:
  // Forms take turns by windows, the first call of each not counted: it finds the caches, and the
  // other ranks, as the form before left them. The others count together: a rank runs ahead of its
  // peers by a message and waits for them in the next call, so single calls' times say little.
  static constexpr uint32_t kWindow = 5;
  static constexpr uint32_t kCounted = kWindow - 1;
  static constexpr uint32_t kRounds = 4;
  // After this time the round that has begun is the last: a program may make few calls that take so
  // long.
  static constexpr Nanoseconds kLong = std::chrono::milliseconds(20);
  // The first copies find slots that nobody has touched: of 4 ranks on 2 CPUs, all-gather of 256
  // KiB, the first eight took 300 us each, and 14 later. Before the first trial, and no longer than
  // kLong. So many calls, too, a rank that could refer waits for others that cannot.
  static constexpr uint32_t kSettlingCalls = 24;
  // Long calls that name mapped memory are mostly faster so, and a trial of them takes as long as
  // 30 others: a program that makes few of a kind is better off without.
  static constexpr uint32_t kPatientCalls = 100;
  // The trial's twenty calls in a slower form, up to twice as long, are then 1 % of the time.
  static constexpr uint32_t kKeptCalls = 2000;
  // A machine's state may change: of 2 CPUs of an AMD EPYC VM, which share a cache or none by turns
  // of seconds, an all-to-all of 1 MiB by 4 ranks takes 145 us or 590 as copies, and 200 as
  // references either way (2026-11-30). So an answer is doubted when two windows in a row have
  // taken longer than what it beat, by an eighth, and than itself in the trial, by half. After so
  // many calls, and after twice as many each time that the trial comes to the same answer.
  static constexpr uint32_t kLeastTrust = 64;
  // References do not tell when copies have become faster: they are kept for so long and so many
  // calls, and for so many times what the trial's slower calls have cost.
  static constexpr Nanoseconds kReferencesKept = std::chrono::milliseconds(400);
  static constexpr uint32_t kReferencesKeptCalls = 128;
  static constexpr int kKeptForCost = 50;
  // A clock's 50 ns a call are not for shorter ones.
  static constexpr Nanoseconds kLeastWatched = std::chrono::microseconds(20);

  // kWatch: until messages can be references. kSettle: copies, until slots are warm. kVerdict: one
  // call, to hear who wants the other algorithm.
  enum class Phase : uint8_t { kWatch, kSettle, kTrial, kVerdict, kKept };

  // Of a form's windows: what came between calls only ever made one longer, and one outlier may be
  // short, where others had run ahead.
  class Windows {
   public:
    void add(Nanoseconds spent) { open_ += spent; }
    void end();
    // The second shortest of several.
    Nanoseconds time() const;

   private:
    Nanoseconds open_{};
    std::array<Nanoseconds, kRounds> ended_{};
    size_t count_ = 0;
  };

  uint32_t formCount() const { return hasOther_ ? 3 : 2; }
  Form formOf(uint32_t call) const { return static_cast<Form>(call / kWindow % formCount()); }
  void start(Phase phase);
  void watch(const Outcome& outcome);
  void count(Nanoseconds spent);
  void tried(const Outcome& outcome);
  bool isLong() const { return tried_ >= kLong; }
  // For all ranks, where they can tell each other.
  bool saysLong() const { return canAgree_ && isLong(); }
  bool isLongEnough(const Outcome& outcome) const {
    return canAgree_ ? outcome.isAgreed : isLong();
  }
  Nanoseconds timeOf(Form form) const { return windows_[static_cast<size_t>(form)].time(); }
  void noteLimit();
  void kept(const Outcome& outcome);
  void watchAnswer(Nanoseconds spent);
  bool doubts() const;
  void endTrial();
  void keep(Form form);

  bool hasOther_ = false;
  bool canAgree_ = false;
  bool isSettled_ = false;
  Phase phase_ = Phase::kWatch;
  bool couldRefer_ = false;           // in the last call
  bool wantsOther_ = false;           // after a trial
  Form own_ = Form::kReference;       // the better of the first two
  Form kept_ = Form::kReference;      // kKept: what calls do
  uint32_t call_ = 0;                 // of this phase
  Nanoseconds tried_{};               // what its calls took
  std::array<Windows, 3> windows_{};  // by form
  Instant lastEnd_{};                 // of a call that was measured
  Instant goodUntil_{};               // of references that are kept
  // kKept, by the trial's windows: how long one may take, zero where nobody looks.
  Nanoseconds limit_{};
  Nanoseconds window_{};      // of the open one's calls
  uint32_t slowWindows_ = 0;  // in a row
  uint32_t trust_ = kLeastTrust;
  bool isDoubted_ = false;   // the trial is for a doubt
  bool isCopyOnly_ = false;  // the last call was
};

}  // namespace tutti::launch
