#include "coalescing.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tutti::pytorch {
namespace {

constexpr size_t kLeastRoom = 1024;

}  // namespace

void Coalescing::start() {
  const std::lock_guard lock(mutex_);
  collected_[std::this_thread::get_id()] = {.works = {}, .room = kLeastRoom};
  threadCount_.store(collected_.size(), std::memory_order_relaxed);
}

void Coalescing::add(const c10::intrusive_ptr<c10d::Work>& work) {
  if (threadCount_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = collected_.find(std::this_thread::get_id());
  if (found == collected_.end()) return;
  auto& [works, room] = found->second;
  if (works.size() == room) {
    std::erase_if(works, [](const auto& each) { return each->isCompleted() && each->isSuccess(); });
    room = std::max(kLeastRoom, 2 * works.size());
  }
  works.push_back(work);
}

Coalescing::Works Coalescing::end() {
  const std::lock_guard lock(mutex_);
  auto mine = collected_.extract(std::this_thread::get_id());
  threadCount_.store(collected_.size(), std::memory_order_relaxed);
  if (mine.empty())
    throw std::runtime_error(
        "tutti: endCoalescing in a thread that has not called startCoalescing");
  return std::move(mine.mapped().works);
}

}  // namespace tutti::pytorch
