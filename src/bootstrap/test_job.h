// Tests only: N ranks as N threads. Each process of the job is a Directory of its own, so ranks of
// different ones really use sockets, on the loopback interface.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/directory.h"

namespace tutti::bootstrap {

inline NetworkOptions loopback(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  NetworkOptions network;
  network.interfaces = "lo";
  network.family = AF_INET;
  network.timeout = timeout;
  return network;
}

// What one rank's thread found.
struct RankResult {
  Status status;
  std::unique_ptr<Bootstrap> bootstrap;
};

class TestJob {
 public:
  using Change = std::function<void(int, Bootstrap::Options&)>;
  using Body = std::function<Status(Bootstrap&)>;

  // ranksPerProcess ranks share a Directory; process 0 makes the id.
  explicit TestJob(int rankCount, int ranksPerProcess = 1, NetworkOptions network = loopback())
      : rankCount_(rankCount), ranksPerProcess_(ranksPerProcess), network_(std::move(network)) {
    for (int first = 0; first < rankCount; first += ranksPerProcess) {
      directories_.push_back(std::make_unique<Directory>());
    }
    Result<UniqueId> made = makeUniqueId(*directories_[0], network_, systemRng());
    if (made.ok()) id_ = *made;
    madeId_ = made.takeStatus();
  }

  Directory& directoryOf(int rank) {
    return *directories_[static_cast<size_t>(rank / ranksPerProcess_)];
  }
  UniqueId& id() { return id_; }
  const Status& madeId() const { return madeId_; }
  NetworkOptions& network() { return network_; }

  Bootstrap::Options optionsOf(int rank) {
    Bootstrap::Options options;
    options.id = id_;
    options.rank = Rank{rank};
    options.rankCount = rankCount_;
    options.network = network_;
    return options;
  }

  // Connects these ranks at once, each on its thread, lets each do `body`, and keeps the bootstraps
  // until all are done.
  std::vector<RankResult> run(const std::vector<int>& ranks, const Body& body,
                              const Change& change = nullptr) {
    std::vector<RankResult> results(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        Bootstrap::Options options = optionsOf(ranks[i]);
        if (change) change(ranks[i], options);
        auto made = Bootstrap::connect(directoryOf(ranks[i]), options);
        results[i].status = made.ok() ? Status() : made.takeStatus();
        if (!made.ok()) return;
        results[i].bootstrap = std::move(made).value();
        if (body) results[i].status = body(*results[i].bootstrap);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  std::vector<RankResult> runAll(const Body& body, const Change& change = nullptr) {
    std::vector<int> ranks(static_cast<size_t>(rankCount_));
    for (int rank = 0; rank < rankCount_; ++rank) ranks[static_cast<size_t>(rank)] = rank;
    return run(ranks, body, change);
  }

 private:
  int rankCount_;
  int ranksPerProcess_;
  NetworkOptions network_;
  std::vector<std::unique_ptr<Directory>> directories_;
  UniqueId id_;
  Status madeId_;
};

}  // namespace tutti::bootstrap
