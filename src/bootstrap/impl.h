// The state of one rank's bootstrap, for the files that implement it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/directory.h"
#include "bootstrap/key.h"

namespace tutti::bootstrap {

// One rank. Filled step by step by connect(); the destructor undoes as much as was done.
struct Bootstrap::Impl {
  Impl(Directory& home, const Options& wanted) : directory(home), options(wanted) {}
  ~Impl();

  void closeOthersRoots();
  Status prepare();
  Status findRoot(const SocketAddress& address, const Key& key);
  Status checkElsewhere(const UniqueId& id, const SocketAddress& address) const;
  Status openFixedRoot(const SocketAddress& address, const Key& key);
  Result<Answer> askForPeers(const SocketAddress& address, const Key& key);
  Status meet(const SocketAddress& address, const Key& key);
  Status learnAll();
  std::string doubtOf(const UniqueId& id) const;
  Status learn(std::span<const std::byte> contacts, int32_t first);

  // Several places to meet at: group_meeting.cc.
  struct Place;
  Status meetInGroups(const std::vector<Key>& keys);
  Status meetAtRoots(const std::vector<Key>& keys);
  Result<Answer> askAt(const Place& place, std::atomic<const Status*>& firstFailure);
  Status learnInGroups();
  Status passAround(std::span<std::byte> contacts);
  Status passDown(std::span<std::byte> contacts);

  Status allGather(std::span<std::byte> all, size_t blockBytes, std::string_view what);
  // Among consecutive ranks; `all` has their blocks.
  struct Members {
    int32_t first = 0;
    int32_t count = 0;
  };
  Status allGatherAmong(const Members& members, std::span<std::byte> all, size_t blockBytes,
                        std::string_view what);
  Status sendBlocks(Rank to, uint64_t tag, std::span<const std::byte> blocks,
                    std::string_view what);
  Status receiveBlocks(Rank from, uint64_t tag, std::span<std::byte> blocks, std::string_view what);
  Status checkPeer(Rank peer) const;
  // Remembers that this rank is in trouble: it tells its peers when it leaves, and hurries.
  Status note(Status status);
  void leave() noexcept;
  void bidFarewell();

  bool isAborted() const {
    return options.abort != nullptr && options.abort->load(std::memory_order_relaxed);
  }

  Directory& directory;
  Options options;
  bool isFixed = false;                // NCCL_COMM_ID
  std::shared_ptr<Root> root;          // when it runs in this process; shared with the directory
  std::shared_ptr<Endpoint> endpoint;  // shared with the other ranks of this process
  bool isUserOfRoot = false;
  std::mutex placesMutex;
  // Guarded: the roots of this process where it met, where there are several; shared as `root` is.
  std::vector<std::pair<JobId, std::shared_ptr<Root>>> places;
  std::vector<Rank> acquaintances;  // until it has learned all: those who may wait for it
  bool isAttached = false;
  bool hasMet = false;  // at several places: all ranks have
  std::mutex failureMutex;
  std::string failure;  // guarded; the first trouble's text
  uint64_t collectives = 0;
  std::chrono::milliseconds patience{options.network.timeout};  // for each message of a collective
  std::string doubt;                                            // Endpoint::Wait::doubt of those
};

}  // namespace tutti::bootstrap
