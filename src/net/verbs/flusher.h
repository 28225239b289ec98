// Makes a GPU see what adapters have written to its memory: each reads a byte of it back, which
// passes none of its writes before. Over a queue pair a port that is connected with itself.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "net/verbs/queue_pairs.h"

namespace tutti::net::verbs {

// Used by its lane's thread.
class Flusher {
 public:
  struct Options {
    const Library& library;  // outlives this, as do all here
    const VerbsOptions& settings;
    std::span<const Road> roads;
    uint32_t packetNumber = 0;
  };
  static Result<std::unique_ptr<Flusher>> open(const Options& options);

  // `regions`: of each road's adapter, around the byte. REQUIRES: the one before is done.
  Status start(const std::byte* byte, std::span<::ibv_mr* const> regions);
  // True when it is done.
  Result<bool> poll();

 private:
  Flusher() = default;

  Alarm alarm_;
  std::array<std::byte, kMaxPorts> landed_{};  // the bytes that were read, of no use
  std::vector<Owned<::ibv_mr>> landings_;      // of each road's adapter
  size_t openCount_ = 0;
  QueuePairs pairs_;  // the first to go: then no adapter touches the rest
};

}  // namespace tutti::net::verbs
