#include "launch/staging_bridge.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/futex.h"
#include "base/relax_cpu.h"
#include "device/host_streams.h"

namespace tutti::launch {
namespace {

// Looks for a round that has not begun, some 0.5 ms, before sleeping between looks: what is ahead
// of it on the stream takes its time.
constexpr uint32_t kLooks = 50'000;
constexpr Nanoseconds kPause = std::chrono::microseconds(20);

}  // namespace

Result<std::unique_ptr<StagingBridge>> StagingBridge::open(Launcher& launcher, device::Device& host,
                                                           device::Accelerator& accelerator) {
  std::unique_ptr<StagingBridge> bridge(new StagingBridge(launcher, host));
  TUTTI_TRY_ASSIGN(bridge->words_, accelerator.makeWords(sizeof(Words)));
  new (bridge->words_->hostAddress()) Words{};
  TUTTI_TRY_ASSIGN(bridge->followed_, host.hostStreams()->createStream());
  TUTTI_TRY_ASSIGN(bridge->begun_, host.hostStreams()->createStream());
  return bridge;
}

StagingBridge::~StagingBridge() {
  close();
  for (void* stream : {followed_, begun_}) {
    if (stream == nullptr) continue;
    // What is left there ends at once.
    [[maybe_unused]] const Status ended = host_.hostStreams()->destroyStream(stream);
  }
}

uint32_t StagingBridge::nextRound() {
  if (++lastRound_ == 0) ++lastRound_;
  return lastRound_;
}

void StagingBridge::close() { launcher_.store(nullptr, std::memory_order_release); }

// ---- tickets

StagingBridge::Ticket* StagingBridge::take(const StagingRound& round) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    tickets_.push_back(std::make_unique<Ticket>());
    free_.reserve(tickets_.size());  // so that giving one back cannot fail
    free_.push_back(tickets_.back().get());
  }
  Ticket* ticket = free_.back();
  free_.pop_back();
  ticket->bridge = this;
  ticket->calls = round.calls;
  ticket->slot = round.slot;
  ticket->number = 0;
  return ticket;
}

void StagingBridge::giveBack(Ticket* ticket) {
  std::lock_guard lock(mutex_);
  free_.push_back(ticket);
}

// ---- how rounds begin

// Whatever happens, the round ends: the stream waits for it.
Status StagingBridge::follow(const StagingRound& round, uint32_t number,
                             const Beginning& beginning) {
  following_.fetch_add(1, std::memory_order_relaxed);
  Status status;
  try {
    status = tryFollow(round, number, beginning);
  } catch (const std::bad_alloc&) {
    status = Status::outOfMemory();
  }
  if (status.ok()) return status;
  endRound(number);
  following_.fetch_sub(1, std::memory_order_release);
  return status;
}

// The ticket of one that cannot be followed is not used again.
Status StagingBridge::tryFollow(const StagingRound& round, uint32_t number,
                                const Beginning& beginning) {
  Ticket* ticket = take(round);
  ticket->number = number;
  ticket->beginning = beginning;
  return host_.hostStreams()->launchHostFunction(followed_, &StagingBridge::carry, ticket);
}

void StagingBridge::carry(void* argument) {
  auto* ticket = static_cast<Ticket*>(argument);
  StagingBridge& bridge = *ticket->bridge;
  bridge.await([&] { return bridge.hasBegun(*ticket); });
  bridge.carryOut(*ticket);
  bridge.giveBack(ticket);
  bridge.following_.fetch_sub(1, std::memory_order_release);
}

bool StagingBridge::hasBegun(const Ticket& ticket) const {
  const auto& begun = words().rounds.begun;
  const Beginning& beginning = ticket.beginning;
  return std::all_of(begun, begun + beginning.blocks, [&](const std::atomic<uint32_t>& word) {
    return wire::hasReached(word.load(std::memory_order_acquire), beginning.number);
  });
}

// Until it is met, or never will be.
template <typename Condition>
void StagingBridge::await(const Condition& isMet) const {
  const bool hasCpu = host_.looksBeforeEnqueue() > 1;
  const uint32_t looks = hasCpu ? kLooks : 0;
  for (uint32_t look = 0; !isMet(); ++look) {
    if (launcher_.load(std::memory_order_acquire) == nullptr) return;
    if (look < looks) {
      relaxCpu();
    } else {
      sleepFor(kPause);
    }
  }
}

// On a thread of the driver's, which must not be held up. What is ahead of it on the stream has
// begun, and what is behind has not.
void StagingBridge::begin(void* argument) {
  auto* ticket = static_cast<Ticket*>(argument);
  StagingBridge& bridge = *ticket->bridge;
  ticket->behind = bridge.words().rounds.begun[0].load(std::memory_order_acquire);
  const Status status =
      bridge.host_.hostStreams()->launchHostFunction(bridge.begun_, &carryBegun, ticket);
  if (status.ok()) return;
  if (Launcher* launcher = bridge.launcher_.load(std::memory_order_acquire); launcher != nullptr)
    launcher->fail(status);
  bridge.end(*ticket);
}

// The calls of ranks come in one order, so those that are followed and have begun end first.
void StagingBridge::carryBegun(void* argument) {
  auto* ticket = static_cast<Ticket*>(argument);
  StagingBridge& bridge = *ticket->bridge;
  bridge.await([&] {
    return wire::hasReached(bridge.words().rounds.ended.load(std::memory_order_acquire),
                            ticket->behind);
  });
  bridge.carryOut(*ticket);
}

// ---- what they do

void StagingBridge::carryOut(const Ticket& ticket) {
  if (Launcher* launcher = launcher_.load(std::memory_order_acquire); launcher != nullptr) {
    Status status;
    try {
      status = run(*launcher, ticket);
    } catch (const std::bad_alloc&) {
      status = Status::outOfMemory();
    }
    if (!status.ok()) {
      launcher->fail(status);
      launcher->retire(observe::Life::kAborted);
    }
  }
  end(ticket);
}

// In this thread. Calls that fail tell the launcher themselves.
Status StagingBridge::run(Launcher& launcher, const Ticket& ticket) {
  device::Task* task = nullptr;
  if (ticket.calls.size() == 1) {
    TUTTI_TRY_ASSIGN(task, launcher.runAtOnce(ticket.calls.front(), host_.looksBeforeEnqueue()));
    if (task == nullptr) return {};
  } else {
    TUTTI_TRY_ASSIGN(task, launcher.prepare(ticket.calls));
  }
  return host_.enqueue(nullptr, {&task, 1});
}

void StagingBridge::end(const Ticket& ticket) {
  if (ticket.number != 0) {
    endRound(ticket.number);
  } else {
    words().graphs[ticket.slot].ended.store(1, std::memory_order_release);
  }
}

// One that could not be followed ends ahead of those before it, which must not take that back.
void StagingBridge::endRound(uint32_t number) {
  std::atomic<uint32_t>& ended = words().rounds.ended;
  uint32_t seen = ended.load(std::memory_order_relaxed);
  while (!wire::hasReached(seen, number) &&
         !ended.compare_exchange_weak(seen, number, std::memory_order_release)) {
  }
}

}  // namespace tutti::launch
