#include "channel/peer_buffers.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/futex.h"
#include "base/log.h"

namespace tutti::channel {
namespace {

constexpr bootstrap::Tag kBufferTag{uint64_t{0x42'55'46'46} << 32};
constexpr uint32_t kNoWord = ~0u;
constexpr Nanoseconds kPause = std::chrono::microseconds(50);

enum class News : uint32_t { kOffer = 1, kAnswer = 2, kWithdrawal = 3, kWindow = 4 };

}  // namespace

struct PeerBuffers::Message {
  News kind = News::kOffer;
  uint32_t number = 0;   // the owner's
  uint64_t address = 0;  // offer: the owner's; answer: the peer's, 0: it cannot; window: offset
  uint64_t bytes = 0;
  uint32_t isLegacy = 0;
  uint32_t window = 0;  // which
  bootstrap::HandoffToken token{};
  std::array<std::byte, 64> legacy{};
};

// Peers unmap when they go, too.
PeerBuffers::~PeerBuffers() {
  for (const Own& own : own_) {
    if (own.isOffered) parts_.handoff.withdraw(own.token);
  }
  for (auto& [key, mapped] : mapped_) {
    // Copies of a graph may come when nobody is there to hold them back.
    if (mapped.isKept) parts_.accelerator.keepFor(graphs_, std::move(mapped.memory));
  }
}

Status PeerBuffers::add(const void* handle, const void* memory, size_t bytes, Kind kind) {
  std::lock_guard lock(mutex_);
  const uint32_t window = kind == Kind::kWindow ? ++windowCount_ : 0;
  TUTTI_TRY_ASSIGN(Own* const own, ownFor(memory, bytes));
  ++own->registrations;
  const auto first = reinterpret_cast<uintptr_t>(memory);
  ranges_[handle] = {first, bytes, own->number, window};
  if (window == 0) return {};
  for (size_t peer = 0; peer < parts_.peers.size(); ++peer) {
    if (static_cast<int32_t>(peer) == self()) continue;
    send(static_cast<int32_t>(peer),
         {.kind = News::kWindow,
          .number = own->number,
          .address = first - reinterpret_cast<uintptr_t>(own->memory.base),
          .bytes = bytes,
          .window = window});
  }
  return {};
}

bool PeerBuffers::addForGraph(const void* buffer, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto first = reinterpret_cast<uintptr_t>(buffer);
  for (const Own& own : own_) {
    const auto base = reinterpret_cast<uintptr_t>(own.memory.base);
    if (own.isOfGraph && !own.isWithdrawn && first >= base &&
        first + bytes <= base + own.memory.bytes)
      return false;
  }
  const uint32_t before = lastNumber_;
  const auto own = ownFor(buffer, bytes);
  if (own.ok()) own.value()->isOfGraph = true;
  return own.ok() && lastNumber_ != before;
}

void PeerBuffers::leaveToGraphs(std::weak_ptr<const void> graphs) {
  std::lock_guard lock(mutex_);
  graphs_ = std::move(graphs);
  for (Own& own : own_) withdraw(own);
}

// The allocation that holds the range: one that is offered, or a new one, offered now.
Result<PeerBuffers::Own*> PeerBuffers::ownFor(const void* memory, size_t bytes) {
  TUTTI_TRY_ASSIGN(const device::Allocation found, parts_.accelerator.allocationOf(memory));
  const auto* first = static_cast<const std::byte*>(memory);
  if (bytes > found.bytes - static_cast<size_t>(first - found.base)) {
    return Status(Code::kInvalidUsage,
                  fmt::format("{} bytes at {} are not within one allocation", bytes, memory));
  }
  if (found.id == 0)
    return Status(Code::kInvalidUsage, "the driver does not tell allocations apart");
  for (Own& own : own_) {
    if (own.memory.id == found.id && !own.isWithdrawn) return &own;
  }
  Own& own = own_.emplace_back();
  own.number = ++lastNumber_;
  own.memory = found;
  if (Status status = offer(own); !status.ok()) {
    if (own.isOffered) parts_.handoff.withdraw(own.token);
    own_.pop_back();
    return status;
  }
  return &own;
}

Status PeerBuffers::offer(Own& own) {
  const auto peerCount = static_cast<int32_t>(parts_.peers.size()) - 1;
  TUTTI_TRY_ASSIGN(const device::SharingHandle handle,
                   parts_.accelerator.exportAllocation(own.memory));
  Message message{.number = own.number,
                  .address = reinterpret_cast<uint64_t>(own.memory.base),
                  .bytes = own.memory.bytes,
                  .isLegacy = handle.isLegacy ? 1U : 0U};
  message.legacy = handle.legacy;
  if (handle.descriptor && peerCount > 0) {
    TUTTI_TRY_ASSIGN(own.token, parts_.handoff.offer(handle.descriptor.get(), peerCount));
    own.isOffered = true;
    message.token = own.token;
  }
  own.word = nextWord_ < wire::kGpuMaxAlive ? nextWord_++ : kNoWord;
  TUTTI_TRY(setAlive(own, 1));
  own.answers = peerCount;
  for (int32_t peer = 0; peer <= peerCount; ++peer) {
    if (peer != self()) send(peer, message);
  }
  return {};
}

// Done when it returns. Waits for no kernel.
Status PeerBuffers::setAlive(const Own& own, uint32_t value) {
  if (own.word == kNoWord) return {};
  return parts_.accelerator.copy(parts_.alive + own.word, &value, sizeof value);
}

void PeerBuffers::remove(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(handle);
  if (found == ranges_.end()) return;
  Own* const own = find(found->second.number);
  ranges_.erase(found);
  if (own != nullptr && --own->registrations == 0 && !own->isOfGraph) withdraw(*own);
}

// From here on no call uses it, and none of a graph. The peers hear of it when those have ended
// that did: releaseWithdrawn().
void PeerBuffers::withdraw(Own& own) {
  if (own.isWithdrawn) return;
  own.isWithdrawn = true;
  // A device that takes no copy runs no graph either.
  [[maybe_unused]] const Status ignored = setAlive(own, 0);
  if (own.isOffered) parts_.handoff.withdraw(own.token);
  own.isOffered = false;
}

void PeerBuffers::releaseWithdrawn(uint64_t finished) {
  std::erase_if(own_, [&](const Own& own) {
    if (!own.isWithdrawn || own.lastUse > finished) return false;
    for (size_t peer = 0; peer < parts_.peers.size(); ++peer) {
      if (static_cast<int32_t>(peer) != self())
        send(static_cast<int32_t>(peer), {.kind = News::kWithdrawal, .number = own.number});
    }
    return true;
  });
}

void PeerBuffers::poll(uint64_t finished) {
  std::lock_guard lock(mutex_);
  pollLocked(finished);
}

void PeerBuffers::pollLocked(uint64_t finished) {
  for (size_t peer = 0; peer < parts_.peers.size(); ++peer) {
    if (static_cast<int32_t>(peer) != self()) receiveFrom(static_cast<int32_t>(peer));
  }
  // What the user has freed without a word: peers would keep its memory from others.
  for (Own& own : own_) {
    if (!own.isWithdrawn && parts_.accelerator.allocationId(own.memory.base) != own.memory.id)
      withdraw(own);
  }
  releaseWithdrawn(finished);
}

void PeerBuffers::settle(Nanoseconds bound, uint64_t finished) {
  const Instant deadline = parts_.clock.now() + bound;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      pollLocked(finished);
      if (isSettled()) return;
    }
    if (parts_.clock.now() >= deadline) return;
    sleepFor(kPause);
  }
}

bool PeerBuffers::isSettled() const {
  return std::ranges::all_of(own_,
                             [](const Own& own) { return own.isWithdrawn || own.answers == 0; });
}

bool PeerBuffers::find(const Use& use, wire::GpuReach& reach) {
  std::lock_guard lock(mutex_);
  const auto first = reinterpret_cast<uintptr_t>(use.buffer);
  const auto holds = [&](uintptr_t start, size_t bytes) {
    return first >= start && use.bytes <= bytes && first - start <= bytes - use.bytes;
  };
  for (Own& own : own_) {
    const auto base = reinterpret_cast<uintptr_t>(own.memory.base);
    if (own.isWithdrawn || own.answers != 0 || own.isRefused || !holds(base, own.memory.bytes))
      continue;
    const bool isRegistered =
        (own.isOfGraph && use.isCaptured) || std::ranges::any_of(ranges_, [&](const auto& entry) {
          const Range& range = entry.second;
          return range.number == own.number && holds(range.first, range.bytes);
        });
    if (!isRegistered || (use.isCaptured && own.word == kNoWord)) continue;
    // The address may be another allocation's by now.
    if (parts_.accelerator.allocationId(use.buffer) != own.memory.id) {
      withdraw(own);
      return false;
    }
    own.lastUse = std::max(own.lastUse, use.launch);
    for (size_t peer = 0; peer < parts_.peers.size(); ++peer) {
      std::byte* theirs = own.theirs[peer];
      reach.output[peer] = theirs == nullptr ? nullptr : theirs + (first - base);
    }
    reach.alive = use.isCaptured ? parts_.alive + own.word : nullptr;
    return true;
  }
  return false;
}

bool PeerBuffers::findInWindow(const Use& use, Places& theirs) {
  std::lock_guard lock(mutex_);
  const auto first = reinterpret_cast<uintptr_t>(use.buffer);
  const auto holds = [&](const auto& entry) {
    const Range& range = entry.second;
    return range.window != 0 && first >= range.first && use.bytes <= range.bytes &&
           first - range.first <= range.bytes - use.bytes;
  };
  const auto found = std::ranges::find_if(ranges_, holds);
  if (found == ranges_.end()) return false;
  const Own* const own = find(found->second.number);
  if (own == nullptr || own->isWithdrawn) return false;
  const size_t offset = first - found->second.first;
  for (size_t peer = 0; peer < parts_.peers.size(); ++peer) {
    const auto key = static_cast<int32_t>(peer);
    theirs[peer] = nullptr;
    const auto window = windows_.find({key, found->second.window});
    if (window == windows_.end()) continue;
    const auto& [number, start, bytes] = window->second;
    const auto mapped = mapped_.find({key, number});
    if (mapped == mapped_.end() || use.bytes > bytes || offset > bytes - use.bytes) continue;
    mapped->second.isKept |= use.isCaptured;
    theirs[peer] = mapped->second.base + start + offset;
  }
  return true;
}

PeerBuffers::Own* PeerBuffers::find(uint32_t number) {
  const auto found = std::ranges::find(own_, number, &Own::number);
  return found == own_.end() ? nullptr : &*found;
}

// A peer that is gone needs no news; whoever waits for it learns why.
void PeerBuffers::send(int32_t peer, const Message& message) {
  const Status status =
      parts_.bootstrap.send(Rank{peer}, kBufferTag, std::as_bytes(std::span(&message, 1)));
  if (!status.ok()) {
    log::info(log::Subsystem::kReg, "rank {}: no word of buffers to rank {}: {}", self(), peer,
              status.message());
  }
}

void PeerBuffers::receiveFrom(int32_t peer) {
  std::vector<std::byte> bytes;
  for (;;) {
    const auto came = parts_.bootstrap.tryReceive(Rank{peer}, kBufferTag, bytes);
    if (!came.ok() || came.value() == Progress::kIdle) return;
    Message message;
    if (bytes.size() != sizeof message) continue;
    std::memcpy(&message, bytes.data(), sizeof message);
    handle(peer, message);
  }
}

void PeerBuffers::handle(int32_t peer, const Message& message) {
  switch (message.kind) {
    case News::kOffer:
      send(peer, {.kind = News::kAnswer,
                  .number = message.number,
                  .address = reinterpret_cast<uint64_t>(map(peer, message))});
      return;
    case News::kAnswer:
      if (Own* own = find(message.number); own != nullptr && own->answers > 0) {
        --own->answers;
        own->isRefused |= message.address == 0;
        own->theirs[static_cast<size_t>(peer)] = reinterpret_cast<std::byte*>(message.address);
        if (own->answers == 0) {
          log::info(log::Subsystem::kReg, "rank {}: {} bytes at {} are {} peers", self(),
                    own->memory.bytes, static_cast<const void*>(own->memory.base),
                    own->isRefused ? "out of reach of" : "written directly by");
        }
      }
      return;
    case News::kWithdrawal:
      if (const auto found = mapped_.find({peer, message.number});
          found != mapped_.end() && !found->second.isKept)
        mapped_.erase(found);
      std::erase_if(windows_, [&](const auto& entry) {
        return entry.first.first == peer && entry.second.number == message.number;
      });
      return;
    case News::kWindow:
      windows_[{peer, message.window}] = {message.number, message.address, message.bytes};
      return;
  }
}

// Null, logged, when it cannot be mapped.
std::byte* PeerBuffers::map(int32_t peer, const Message& message) {
  const Result<std::byte*> mapped = tryMap(peer, message);
  if (mapped.ok()) return mapped.value();
  log::info(log::Subsystem::kReg, "rank {}: a buffer of rank {} cannot be mapped: {}", self(), peer,
            mapped.status().message());
  return nullptr;
}

Result<std::byte*> PeerBuffers::tryMap(int32_t peer, const Message& message) {
  const bootstrap::PeerInfo& own = parts_.peers[static_cast<size_t>(self())];
  const bootstrap::PeerInfo& other = parts_.peers[static_cast<size_t>(peer)];
  device::Accelerator& accelerator = parts_.accelerator;
  if (message.isLegacy != 0 && own.processHash == other.processHash) {
    TUTTI_TRY(accelerator.reachDevice(other.deviceIndex));
    auto* base = reinterpret_cast<std::byte*>(message.address);
    mapped_[{peer, message.number}] = {.memory = nullptr, .base = base};
    return base;
  }
  std::unique_ptr<device::DeviceMemory> memory;
  if (message.isLegacy != 0) {
    TUTTI_TRY_ASSIGN(memory, accelerator.importLegacy(message.legacy, message.bytes));
  } else {
    TUTTI_TRY_ASSIGN(UniqueFd fd, bootstrap::Handoff::take(other.handoffName.data(), message.token,
                                                           parts_.timeout, parts_.abort));
    TUTTI_TRY_ASSIGN(memory, accelerator.importMemory(std::move(fd), message.bytes));
  }
  auto* address = static_cast<std::byte*>(memory->address());
  mapped_[{peer, message.number}] = {.memory = std::move(memory), .base = address};
  return address;
}

}  // namespace tutti::channel
