#include "observe/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/char_field.h"
#include "base/clock.h"
#include "observe/process_state.h"

namespace tutti::observe {

void ProcessRecorders::add(Recorder& recorder) {
  std::lock_guard lock(mutex_);
  recorders_.push_back(&recorder);
}

void ProcessRecorders::remove(Recorder& recorder) {
  std::lock_guard lock(mutex_);
  std::erase(recorders_, &recorder);
}

void ProcessRecorders::mark() {
  std::lock_guard lock(mutex_);
  for (Recorder* recorder : recorders_) recorder->setLife(Life::kExited);
}

Recorder::Recorder(Board board, int32_t rank, std::string_view hostName, ProcessRecorders& siblings)
    : board_(std::move(board)),
      rank_(rank),
      page_(&board_.page(rank)),
      siblings_(siblings),
      keepsTimes_(siblings.isWatchingClosely()) {
  // Others may be reading what the board's maker has written there of us.
  if (page_->processId == 0) board_.place(rank, hostName, thisProcess());
  page_->threadId = ::gettid();
  page_->life.store(static_cast<uint32_t>(Life::kReady), std::memory_order_release);
  siblings_.add(*this);
}

Recorder::~Recorder() { siblings_.remove(*this); }

bool Recorder::giveVerdict(const Verdict& verdict) {
  if (!board_.giveVerdict(verdict)) return false;
  siblings_.verdictGiven(board_);
  return true;
}

void Recorder::noteBeginning(uint64_t number) {
  EntryTimes& times = page_->times[number % kHistory];
  times.began.store(static_cast<int64_t>(steadyClock().now()), std::memory_order_release);
  times.ended.store(0, std::memory_order_release);
}

void Recorder::noteEnd(uint64_t number) {
  page_->times[number % kHistory].ended.store(static_cast<int64_t>(steadyClock().now()),
                                              std::memory_order_release);
}

void writeWaits(Page& page, std::span<const WaitNote> waits) {
  for (size_t i = 0; i < kMaxWaits; ++i) {
    WaitSlot& slot = page.waits[i];
    slot.since.store(0, std::memory_order_relaxed);
    if (i >= waits.size()) continue;
    const WaitNote& wait = waits[i];
    slot.whom.store(packWhom(wait), std::memory_order_release);
    slot.progress.store(packProgress(wait), std::memory_order_release);
    slot.number.store(wait.number, std::memory_order_release);
    slot.since.store(wait.since, std::memory_order_release);
  }
}

void Recorder::publishWaits(const WaitNote* waits, size_t count) {
  writeWaits(*page_, {waits, count});
  hasWaits_ = count > 0;
}

void Recorder::setLife(Life life) {
  uint32_t seen = page_->life.load(std::memory_order_relaxed);
  while (seen < static_cast<uint32_t>(life) &&
         !page_->life.compare_exchange_weak(seen, static_cast<uint32_t>(life),
                                            std::memory_order_release)) {
  }
}

}  // namespace tutti::observe
