#include "kernels/crew.h"

#include <sched.h>

#include <new>
#include <utility>

#include "base/affinity.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/relax_cpu.h"
#include "base/service_thread.h"

namespace tutti::kernels {
namespace {

constexpr int kSlicesShift = 32;
constexpr int kNextShift = 48;

// Only while nobody else wants the CPU. A helper that is woken would else push aside a thread of
// the program or a rank, where the scheduler finds no idle CPU for it, and all ranks wait for that
// one.
void runWhereIdle() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);  // or as before
}

constexpr uint64_t ticketOf(uint32_t job, uint32_t slices) {
  return uint64_t{slices} << kSlicesShift | job;
}
constexpr uint32_t jobOf(uint64_t ticket) { return static_cast<uint32_t>(ticket); }
constexpr uint32_t slicesOf(uint64_t ticket) { return ticket >> kSlicesShift & 0xffff; }
constexpr uint32_t nextOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> kNextShift); }

}  // namespace

Result<std::unique_ptr<Crew>> Crew::start(int32_t helpers, Clock& clock) {
  auto crew = std::unique_ptr<Crew>(new Crew(clock));
  crew->scratches_.resize(static_cast<size_t>(helpers) + 1);
  crew->threads_.reserve(static_cast<size_t>(helpers));
  for (int32_t seat = 1; seat <= helpers; ++seat) {
    Result<std::thread> thread =
        startThread("tutti-helper", [self = crew.get(), seat] { self->help(seat); });
    if (!thread.ok() && crew->threads_.empty()) return thread.takeStatus();
    if (!thread.ok()) break;
    crew->threads_.push_back(std::move(thread).value());
  }
  return crew;
}

Crew::~Crew() {
  isOver_.store(true, std::memory_order_release);
  ticket_.store(ticketOf(jobOf(ticket_.load(std::memory_order_relaxed)) + 1, 0));
  wakeAll(ticket_);
  for (std::thread& thread : threads_) thread.join();
}

Status Crew::run(uint32_t slices, const Job& job) {
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  const uint32_t number = jobOf(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(ticketOf(number, slices), std::memory_order_seq_cst);
  wakeIfSleeping(ticket_, sleepers_);
  while (takeSlice(0)) {
  }
  awaitSlices(slices);
  return std::exchange(failure_, {});
}

// The next slice that nobody has taken; false: there is none.
bool Crew::takeSlice(int32_t seat) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (nextOf(ticket) >= slicesOf(ticket)) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + (uint64_t{1} << kNextShift),
                                          std::memory_order_acquire));
  Status status = doSlice(seat, nextOf(ticket));
  if (!status.ok()) [[unlikely]] {
    const std::lock_guard lock(failureMutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

Status Crew::doSlice(int32_t seat, uint32_t slice) const {
  try {
    return job_.call(job_.context, seat, slice);
  } catch (const std::bad_alloc&) {
    return Status::outOfMemory();
  } catch (...) {
    return internalError("a slice of a long call ended by an exception");
  }
}

void Crew::awaitSlices(uint32_t slices) {
  if (done_.load(std::memory_order_acquire) == slices) return;
  constexpr uint32_t kLooksAYield = 1024;
  // From then on a helper gets even this thread's CPU, whatever the threads' priorities.
  constexpr uint32_t kLooksBeforeSleep = 1 << 18;
  const Instant began = clock_.now();
  for (uint32_t looks = 1; done_.load(std::memory_order_acquire) != slices; ++looks) {
    relaxCpu();
    if (looks % kLooksAYield == 0) std::this_thread::yield();
    if (looks > kLooksBeforeSleep) sleepFor(std::chrono::microseconds(50));
  }
  const Instant now = clock_.now();
  late_.waited(now - began, now);
}

void Crew::help(int32_t seat) {
  constexpr uint32_t kLooksATime = 64;
  runWhereIdle();
  Instant last = clock_.now();
  for (uint32_t looks = 1; !isOver_.load(std::memory_order_acquire); ++looks) {
    if (takeSlice(seat)) {
      while (takeSlice(seat)) {
      }
      last = clock_.now();
    }
    relaxCpu();
    if (looks % kLooksATime != 0 || clock_.now() - last < kLinger) continue;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = ticket_.load(std::memory_order_seq_cst);
    if (nextOf(seen) >= slicesOf(seen) && !isOver_.load(std::memory_order_acquire))
      sleepOn({.word = &ticket_, .seen = seen}, kUnbounded);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    last = clock_.now();
  }
}

Crews::Lease Crews::take(int32_t helpers) {
  const CpuMask cpus = affinityMask();
  const int32_t most = std::min(helpers, countOf(cpus) - 1);
  if (most <= 0) return {};
  const std::lock_guard lock(mutex_);
  int32_t busy = 0;
  Member* found = nullptr;
  for (Member& member : members_) {
    if (member.isOut) busy += member.crew->helpers();
    if (!member.isOut && member.most == most && member.cpus == cpus) found = &member;
  }
  if (busy + most > countOf(cpus)) return {};
  if (found == nullptr) found = &add(most, cpus);
  if (found->crew == nullptr) return {};
  found->isOut = true;
  return Lease(found->crew.get(), GiveBack(this));
}

// Without a crew where no thread can be started, so that not each call tries.
Crews::Member& Crews::add(int32_t most, const CpuMask& cpus) {
  Member& member = members_.emplace_back(Member{.crew = {}, .most = most, .cpus = cpus});
  Result<std::unique_ptr<Crew>> crew = Crew::start(most, clock_);
  if (crew.ok()) {
    member.crew = std::move(crew).value();
  } else if (!std::exchange(hasWarned_, true)) {
    log::warn("long calls go without helpers: {}", crew.status().message());
  }
  return member;
}

void Crews::giveBack(Crew* crew) {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (member.crew.get() == crew) member.isOut = false;
  }
}

}  // namespace tutti::kernels
