#include "comm/registrations.h"

namespace tutti::comm {
namespace {

struct Words {
  std::string_view noun, end;
};

Words wordsFor(Registrations::Kind kind) {
  switch (kind) {
    case Registrations::Kind::kBuffer: return {"registration", "ncclCommDeregister"};
    case Registrations::Kind::kWindow: return {"window", "ncclCommWindowDeregister"};
  }
  return {};
}

}  // namespace

Result<void*> Registrations::add(Kind kind, const void* memory, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  if (memory == nullptr) return invalidArgument("buff is NULL");
  if (bytes == 0)
    return invalidArgument("size is 0; a {} has at least 1 byte", wordsFor(kind).noun);
  if (first + bytes < first)
    return invalidArgument("{} bytes at {} do not fit into the address space", bytes, memory);
  std::lock_guard lock(mutex_);
  ranges_.emplace(++lastHandle_, Range{kind, first, bytes});
  return reinterpret_cast<void*>(lastHandle_);
}

Status Registrations::remove(Kind kind, const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(handle));
  if (found == ranges_.end()) {
    return invalidArgument(
        "handle {} is no {} of this communicator: it was deregistered before, or never made",
        handle, wordsFor(kind).noun);
  }
  if (const Words own = wordsFor(found->second.kind); found->second.kind != kind) {
    return invalidArgument("handle {} is a {}, which {} ends", handle, own.noun, own.end);
  }
  ranges_.erase(found);
  return {};
}

size_t Registrations::count() const {
  std::lock_guard lock(mutex_);
  return ranges_.size();
}

}  // namespace tutti::comm
