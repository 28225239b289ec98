#include "channel/peer_segments.h"

#include <algorithm>
#include <span>

#include "base/char_field.h"

namespace tutti::channel {
namespace {

// The end of the control area is nobody else's: the owner's word, then one for each rank that tries
// its mapping.
constexpr size_t kCheckOffset = wire::kGpuControlBytes - 1024;
static_assert(sizeof(wire::GpuControl) <= kCheckOffset);
static_assert((1 + wire::kGpuProgramRanks) * sizeof(uint64_t) <= 1024);

// What all hear of each rank in the end.
struct Outcome {
  uint32_t code = 0;
  uint32_t keepsLines = 0;
};

constexpr size_t checkOffset(size_t place) { return kCheckOffset + place * sizeof(uint64_t); }

template <typename T>
std::span<std::byte> bytesOf(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

constexpr std::string_view kWhat = "the sharing of GPU memory";

}  // namespace

PeerSegments::~PeerSegments() {
  if (isOffered_) parts_.handoff.withdraw(token_);
}

Result<PeerSegments::Shared> PeerSegments::connect(const Parts& parts) {
  std::unique_ptr<PeerSegments> segments(new PeerSegments(parts));
  const auto rankCount = parts.peers.size();
  const auto rank = static_cast<size_t>(index(segments->self()));

  // A rank that fails still takes part in both rounds, so that the others need not wait for it.
  std::vector<Announcement> announcements(rankCount);
  Result<Announcement> made = segments->announce();
  if (made.ok()) {
    announcements[rank] = made.value();
  } else {
    announcements[rank].code = static_cast<uint32_t>(made.status().code());
  }
  TUTTI_TRY(parts.bootstrap.allGather(bytesOf(announcements), sizeof(Announcement), kWhat));
  Status status = made.ok() ? segments->mapAll(announcements) : made.takeStatus();

  // Also a barrier: no kernel of a rank starts, and then waits, while another still maps memory.
  std::vector<Outcome> outcomes(rankCount);
  outcomes[rank] = {.code = static_cast<uint32_t>(status.code()),
                    .keepsLines = parts.keepsLines ? 1u : 0u};
  TUTTI_TRY(parts.bootstrap.allGather(bytesOf(outcomes), sizeof(Outcome), kWhat));
  if (!status.ok()) return Shared{.segments = nullptr, .obstacle = std::string(status.message())};
  for (size_t peer = 0; peer < rankCount; ++peer) {
    if (outcomes[peer].code == 0) continue;
    return Shared{.segments = nullptr,
                  .obstacle = fmt::format("rank {} ({}) could not share device memory with the "
                                          "others; its own log says why",
                                          peer, textOf(parts.peers[peer].hostName))};
  }
  const bool keepsLines =
      std::ranges::all_of(outcomes, [](const Outcome& outcome) { return outcome.keepsLines != 0; });
  return Shared{.segments = std::move(segments), .obstacle = {}, .keepsLines = keepsLines};
}

Result<PeerSegments::Announcement> PeerSegments::announce() {
  Announcement announcement;
  TUTTI_TRY_ASSIGN(own_, parts_.accelerator.makeMemory(wantedBytes_));
  parts_.rng.fill(std::as_writable_bytes(std::span(&announcement.checkWord, 1)));
  auto* base = static_cast<std::byte*>(own_->address());
  TUTTI_TRY(parts_.accelerator.copy(base + checkOffset(0), &announcement.checkWord,
                                    sizeof announcement.checkWord));
  addresses_[static_cast<size_t>(index(self()))] = base;
  announcement.bytes = own_->bytes();
  if (parts_.peers.size() == 1) return announcement;

  TUTTI_TRY_ASSIGN(const UniqueFd handle, own_->exportHandle());
  TUTTI_TRY_ASSIGN(token_,
                   parts_.handoff.offer(handle.get(), static_cast<int>(parts_.peers.size()) - 1));
  isOffered_ = true;
  announcement.token = token_;
  return announcement;
}

Status PeerSegments::mapAll(const std::vector<Announcement>& announcements) {
  mapped_.resize(announcements.size());
  for (size_t peer = 0; peer < announcements.size(); ++peer) {
    if (peer == static_cast<size_t>(index(self()))) continue;
    const Announcement& announcement = announcements[peer];
    if (announcement.code != 0) {
      return makeError(Code::kSystemError,
                       fmt::format("rank {} ({}) has no device memory to share; its own log says "
                                   "why",
                                   peer, textOf(parts_.peers[peer].hostName)));
    }
    if (announcement.bytes < wantedBytes_) {
      return remoteError("rank {} ({}) announces a segment of {} bytes; {} are wanted", peer,
                         textOf(parts_.peers[peer].hostName), announcement.bytes, wantedBytes_);
    }
    if (Status status = mapOne(peer, announcement); !status.ok()) return pairFailure(peer, status);
  }
  return parts_.hasPrograms ? writeTable() : Status();
}

// Where each rank's area of programs is: too much for a kernel's parameter.
Status PeerSegments::writeTable() {
  const size_t offset = wire::gpuProgramOffset(static_cast<int32_t>(addresses_.size()));
  std::vector<std::byte*> areas;
  for (std::byte* address : addresses_) areas.push_back(address + offset);
  std::byte* own = areas[static_cast<size_t>(index(self()))];
  return parts_.accelerator.copy(own, areas.data(), areas.size() * sizeof(std::byte*));
}

Status PeerSegments::mapOne(size_t peer, const Announcement& announcement) {
  TUTTI_TRY_ASSIGN(UniqueFd handle,
                   bootstrap::Handoff::take(parts_.peers[peer].handoffName.data(),
                                            announcement.token, parts_.timeout, parts_.abort));
  TUTTI_TRY_ASSIGN(mapped_[peer],
                   parts_.accelerator.importMemory(std::move(handle), announcement.bytes));
  addresses_[peer] = static_cast<std::byte*>(mapped_[peer]->address());
  return checkMapping(peer, announcement);
}

Status PeerSegments::checkMapping(size_t peer, const Announcement& announcement) {
  uint64_t seen = 0;
  TUTTI_TRY(parts_.accelerator.copy(&seen, addresses_[peer] + checkOffset(0), sizeof seen));
  if (seen != announcement.checkWord) {
    return makeError(Code::kSystemError,
                     fmt::format("a copy from it brings {:#x} where {:#x} was written", seen,
                                 announcement.checkWord));
  }
  const uint64_t written = ~announcement.checkWord;
  std::byte* place = addresses_[peer] + checkOffset(1 + static_cast<size_t>(index(self())));
  TUTTI_TRY(parts_.accelerator.copy(place, &written, sizeof written));
  TUTTI_TRY(parts_.accelerator.copy(&seen, place, sizeof seen));
  if (seen == written) return {};
  return makeError(Code::kSystemError,
                   fmt::format("a copy to it leaves {:#x} where {:#x} was written", seen, written));
}

Status PeerSegments::pairFailure(size_t peer, const Status& reason) const {
  const bootstrap::PeerInfo& own = parts_.peers[static_cast<size_t>(index(self()))];
  const bootstrap::PeerInfo& other = parts_.peers[peer];
  return makeError(Code::kSystemError,
                   fmt::format("rank {} (GPU {}, {}) cannot use device memory of rank {} (GPU {}, "
                               "{}): {}",
                               own.rank, own.deviceIndex, textOf(own.hostName), other.rank,
                               other.deviceIndex, textOf(other.hostName), reason.message()));
}

}  // namespace tutti::channel
