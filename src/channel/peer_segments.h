// PeerSegments: the device memory of a communicator's ranks (wire/gpu_work.h), one segment a rank,
// each mapped by all.
//
// All ranks meet for this while they initialise: memory is made and mapped when no kernel of the
// communicator can wait yet, and nothing is left to do inside a capture.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/handoff.h"
#include "bootstrap/peer_info.h"
#include "device/accelerator.h"
#include "wire/gpu_program.h"
#include "wire/gpu_work.h"

namespace tutti::channel {

class PeerSegments {
 public:
  struct Parts {
    bootstrap::Bootstrap& bootstrap;
    bootstrap::Handoff& handoff;
    const std::vector<bootstrap::PeerInfo>& peers;  // by rank
    device::Accelerator& accelerator;
    std::chrono::milliseconds timeout;
    const std::atomic<bool>* abort = nullptr;  // may be null; outlives the connecting
    bool hasPrograms = false;                  // wire::gpuSegmentBytes(); the same on all ranks
    bool keepsLines = false;                   // Accelerator::keepsLinesTo() all peers
    Rng& rng = systemRng();
  };

  // Called by all ranks. Makes this rank's segment, maps the peers', and tries each mapping with a
  // real copy in both directions: peer access can be advertised and broken. When that fails between
  // any two ranks, all get no segments, and each is told of a pair.
  struct Shared {
    std::unique_ptr<PeerSegments> segments;
    std::string obstacle;     // where there are none
    bool keepsLines = false;  // on all ranks
  };
  static Result<Shared> connect(const Parts& parts);
  ~PeerSegments();
  PeerSegments(const PeerSegments&) = delete;
  PeerSegments& operator=(const PeerSegments&) = delete;

  // Of every rank, as this rank's kernels use it.
  std::span<std::byte* const> addresses() const { return addresses_; }
  size_t ownBytes() const { return own_->bytes(); }
  uint32_t* aliveWords() const { return static_cast<wire::GpuControl*>(own_->address())->alive; }

 private:
  // What a rank tells the others of its segment.
  struct Announcement {
    bootstrap::HandoffToken token{};
    uint64_t bytes = 0;
    uint64_t checkWord = 0;  // stands in the segment's last control bytes
    uint32_t code = 0;       // of the failure, if the rank has no segment
  };

  explicit PeerSegments(const Parts& parts)
      : parts_(parts),
        wantedBytes_(
            wire::gpuSegmentBytes(static_cast<int32_t>(parts.peers.size()), parts.hasPrograms)),
        addresses_(parts.peers.size()) {}
  Rank self() const { return parts_.bootstrap.rank(); }
  Result<Announcement> announce();
  Status mapAll(const std::vector<Announcement>& announcements);
  Status mapOne(size_t peer, const Announcement& announcement);
  Status writeTable();
  Status checkMapping(size_t peer, const Announcement& announcement);
  Status pairFailure(size_t peer, const Status& reason) const;

  const Parts parts_;
  const size_t wantedBytes_;
  std::unique_ptr<device::DeviceMemory> own_;
  bootstrap::HandoffToken token_{};
  bool isOffered_ = false;
  std::vector<std::unique_ptr<device::DeviceMemory>> mapped_;  // of peers, by rank
  std::vector<std::byte*> addresses_;
};

}  // namespace tutti::channel
