// Threads that help the one which runs a long call: what a step copies or folds is cut into slices,
// which all of them take in turn.
//
// One core moves a fraction of what a machine's memory can: 5.3 of 76 GB/s (Intel Xeon VM of 32
// CPUs, family 6, model 207, 2026-11-28). So a rank that has several CPUs to itself takes some of
// them for its long calls, for as long as these last.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/cache_lines.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "kernels/step_scratch.h"

namespace tutti::kernels {

// Helpers come late where others have the CPUs: a thread that has lost its own gets it back after
// milliseconds, in which a rank, and all that wait for it, would have done a hundred steps. So they
// are left alone for many times what was waited for them, and ever longer where they are late as
// soon as they are back.
class LateHelpers {
 public:
  static constexpr Nanoseconds kLate = std::chrono::microseconds(200);
  static constexpr Nanoseconds kLongestRest = std::chrono::seconds(4);

  bool areResting(Instant now) const { return now < until_; }
  // After a job: the caller has waited so long for them.
  void waited(Nanoseconds late, Instant now) {
    if (late < kLate) return;
    timesTheWait_ = now - until_ < rest_ ? std::min(2 * timesTheWait_, kMostTimes) : kLeastTimes;
    rest_ = std::min(late * timesTheWait_, kLongestRest);
    until_ = now + rest_;
  }

 private:
  static constexpr int64_t kLeastTimes = 16;
  static constexpr int64_t kMostTimes = 1024;
  int64_t timesTheWait_ = kLeastTimes;
  Nanoseconds rest_{0};  // the last
  Instant until_{};
};

// Used by one thread at a time, which does its part and returns when all is done.
class Crew {
 public:
  // A slice's least: a hand-over costs some 0.2 us, a copy of so much 1 to 3.
  static constexpr size_t kSliceBytes = 16_KiB;

  // Starts so many threads, at least one; fewer where no more can be had.
  static Result<std::unique_ptr<Crew>> start(int32_t helpers, Clock& clock);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int32_t helpers() const { return static_cast<int32_t>(threads_.size()); }
  // Of the thread of that number in a part below; 0: the caller's.
  StepScratch& scratch(int32_t seat) { return scratches_[static_cast<size_t>(seat)]; }

  // part(seat, first, count) for all of so many things of `bytesEach`: by each thread for slices of
  // its own, which begin at multiples of a cache line. The first failure, once all are done.
  template <typename Part>
  Status share(size_t count, size_t bytesEach, Part&& part) {
    const size_t most = kSlicesEach * scratches_.size();
    const size_t slices = std::min(count * bytesEach / kSliceBytes, most);
    if (slices < 2 || late_.areResting(clock_.now())) return part(0, size_t{0}, count);
    const size_t unit = std::max<size_t>(kCacheLineBytes / bytesEach, 1);
    const size_t each = roundUp(divideUp(count, slices), unit);
    const auto body = [&](int32_t seat, uint32_t slice) {
      const size_t first = slice * each;
      return part(seat, first, std::min(each, count - first));
    };
    return run(static_cast<uint32_t>(divideUp(count, each)),
               {.context = &body, .call = [](const void* context, int32_t seat, uint32_t slice) {
                  return (*static_cast<const decltype(body)*>(context))(seat, slice);
                }});
  }

 private:
  static constexpr size_t kSlicesEach = 2;
  // How long a helper looks for more before it sleeps.
  static constexpr Nanoseconds kLinger = std::chrono::microseconds(100);

  struct Job {
    const void* context = nullptr;
    Status (*call)(const void* context, int32_t seat, uint32_t slice) = nullptr;
  };

  explicit Crew(Clock& clock) : clock_(clock) {}
  Status run(uint32_t slices, const Job& job);
  bool takeSlice(int32_t seat);
  Status doSlice(int32_t seat, uint32_t slice) const;
  void awaitSlices(uint32_t slices);
  void help(int32_t seat);

  Clock& clock_;
  std::vector<StepScratch> scratches_;  // by seat; constant but for their contents
  std::vector<std::thread> threads_;
  LateHelpers late_;  // of the caller alone
  Job job_;           // written while no slice is open, so that whoever has taken one may read it

  // Job number | slices << 32 | next slice << 48. The number, its futex, changes with each job,
  // so a slice is taken of the job that was looked at or not at all. Written with seq_cst by the
  // caller, which also publishes job_, and taken from with acquire by everybody. The number may
  // wrap: nobody looks at one for so long.
  alignas(kCacheLineBytes) std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> sleepers_{0};  // base/futex.h
  std::atomic<bool> isOver_{false};    // written before a last job without slices

  // Slices of the job that are done: raised with release by whoever did one, awaited with acquire
  // by the caller, who sets it to 0 before the next.
  alignas(kCacheLineBytes) std::atomic<uint32_t> done_{0};

  std::mutex failureMutex_;  // guards failure_
  Status failure_;
};

// The crews of a process: as many as there are operations at a time that want one. Any thread.
class Crews {
 public:
  explicit Crews(Clock& clock) : clock_(clock) {}

  class GiveBack {
   public:
    explicit GiveBack(Crews* crews = nullptr) : crews_(crews) {}
    void operator()(Crew* crew) const { crews_->giveBack(crew); }

   private:
    Crews* crews_;
  };
  using Lease = std::unique_ptr<Crew, GiveBack>;

  // One with so many helpers, or as many as the calling thread may have CPUs besides its own, made
  // by a thread that had the same CPUs. Null where that is none, where all helpers that are out
  // would be more than these CPUs, or where no thread can be started, which is warned of.
  Lease take(int32_t helpers);

 private:
  struct Member {
    std::unique_ptr<Crew> crew;
    int32_t most = 0;  // helpers
    CpuMask cpus{};    // of its threads
    bool isOut = false;
  };
  Member& add(int32_t most, const CpuMask& cpus);
  void giveBack(Crew* crew);

  Clock& clock_;
  std::mutex mutex_;  // guards the two below
  std::vector<Member> members_;
  bool hasWarned_ = false;
};

}  // namespace tutti::kernels
