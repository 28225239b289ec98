// The fabrics of a process, each opened once, however many providers use it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "net/fabric.h"

namespace tutti::net {

// Thread-safe. A call that hangs keeps others from the same fabric only.
class Fabrics {
 public:
  using Open = std::function<Result<std::unique_ptr<Fabric>>()>;

  // The one of that name while somebody has it, else what `open` gives.
  Result<std::shared_ptr<Fabric>> get(const std::string& name, const Open& open) {
    const std::shared_ptr<Entry> entry = entryOf(name);
    const std::lock_guard lock(entry->mutex);
    if (std::shared_ptr<Fabric> fabric = entry->fabric.lock()) return fabric;
    TUTTI_TRY_ASSIGN(std::shared_ptr<Fabric> fabric, open());
    entry->fabric = fabric;
    return fabric;
  }

 private:
  struct Entry {
    std::mutex mutex;  // guards fabric
    std::weak_ptr<Fabric> fabric;
  };

  std::shared_ptr<Entry> entryOf(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& entry = entries_[name];
    if (entry == nullptr) entry = std::make_shared<Entry>();
    return entry;
  }

  std::mutex mutex_;  // guards entries_
  // Shared with calls that open one.
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace tutti::net
