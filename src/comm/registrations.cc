#include "comm/registrations.h"

namespace tutti::comm {

Result<void*> Registrations::add(const void* memory, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  if (memory == nullptr) return invalidArgument("buff is NULL");
  if (bytes == 0) return invalidArgument("size is 0; a registered buffer has at least 1 byte");
  if (first + bytes < first)
    return invalidArgument("{} bytes at {} do not fit into the address space", bytes, memory);
  std::lock_guard lock(mutex_);
  ranges_.emplace(++lastHandle_, Range{first, bytes});
  return reinterpret_cast<void*>(lastHandle_);
}

Status Registrations::remove(const void* handle) {
  std::lock_guard lock(mutex_);
  if (ranges_.erase(reinterpret_cast<uintptr_t>(handle)) != 0) return {};
  return invalidArgument(
      "handle {} is no registration of this communicator: it was deregistered before, or never "
      "made",
      handle);
}

size_t Registrations::count() const {
  std::lock_guard lock(mutex_);
  return ranges_.size();
}

}  // namespace tutti::comm
