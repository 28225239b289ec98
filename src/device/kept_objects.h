// What graphs of the user's may use beyond the life of its owner. Thread-safe.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::device {

class KeptObjects {
 public:
  void keepForGood(std::shared_ptr<const void> object) { keepFor(forGood_, std::move(object)); }
  // Until what `users` names is gone; it goes here and now if that has happened, else with a later
  // dropUnused().
  void keepFor(std::weak_ptr<const void> users, std::shared_ptr<const void> object) {
    {
      const std::lock_guard lock(mutex_);
      kept_.push_back({std::move(users), std::move(object)});
    }
    dropUnused();
  }
  // In the order in which they were kept.
  void dropUnused() {
    std::vector<Kept> unused;
    {
      const std::lock_guard lock(mutex_);
      const auto first = std::stable_partition(
          kept_.begin(), kept_.end(), [](const Kept& one) { return !one.users.expired(); });
      std::move(first, kept_.end(), std::back_inserter(unused));
      kept_.erase(first, kept_.end());
    }
    for (Kept& one : unused) one.object.reset();
  }

 private:
  struct Kept {
    std::weak_ptr<const void> users;
    std::shared_ptr<const void> object;  // shared with nobody
  };
  const std::shared_ptr<const void> forGood_ = std::make_shared<char>();
  std::mutex mutex_;  // guards the next
  std::vector<Kept> kept_;
};

}  // namespace tutti::device
