// Tests only: one rank of a communicator of GPUs of ordinary memory, with its launcher; of the
// others there are the segments and the pages on the board.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/futex.h"
#include "bootstrap/test_job.h"
#include "device/fake_accelerator_testing.h"
#include "launch/gpu_launcher.h"

namespace tutti::launch {

struct GpuRankOptions {
  GpuLimits limits{};
  int32_t self = 1;
  Nanoseconds timeout = std::chrono::seconds(20);
  Nanoseconds waitLimit{0};
  bool checksPointers = false;
};

class GpuRank {
 public:
  using Options = GpuRankOptions;
  static constexpr Nanoseconds kWatchInterval = std::chrono::milliseconds(5);

  explicit GpuRank(Options options)
      : options_(std::move(options)),
        count_(static_cast<size_t>(options_.limits.rankCount)),
        handoffs_(count_),
        gpus_(count_),
        job_(options_.limits.rankCount),
        board_(observe::Board::create(options_.limits.rankCount, "job", options_.timeout.count())
                   .value()) {
    options_.limits.hasPrograms = needsPrograms(options_.limits);
    for (size_t rank = 0; rank < count_; ++rank) {
      bootstrap::PeerInfo info;
      info.rank = info.deviceIndex = static_cast<int32_t>(rank);
      info.processId = static_cast<int32_t>(1000 + rank);
      info.processHash = rank + 1;
      setText(info.hostName, nodeName(rank));
      setText(info.handoffName, handoffs_[rank].name());
      peers_.push_back(info);
      recorders_.push_back(std::make_unique<observe::Recorder>(
          observe::Board::open(UniqueFd(::fcntl(board_.fd(), F_DUPFD_CLOEXEC, 0))).value(),
          info.rank, nodeName(rank), siblings_));
    }
    gpu().argumentBytes = bytesOfArgument;
    connect();
  }
  ~GpuRank() { close(); }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  static std::string nodeName(size_t rank) { return "node" + std::to_string(rank); }
  device::FakeAccelerator& gpu() { return gpus_[static_cast<size_t>(options_.self)]; }
  GpuLauncher& launcher() { return *launcher_; }
  channel::PeerSegments* segments() { return segments_; }
  observe::Board& board() { return board_; }
  observe::Recorder& recorderOf(size_t rank) { return *recorders_[rank]; }
  const std::vector<bootstrap::PeerInfo>& peers() const { return peers_; }
  size_t rankCount() const { return count_; }

  // The launcher, from the segments that were shared. Once.
  Status open() {
    auto shared = std::move(shared_[static_cast<size_t>(options_.self)]);
    segments_ = shared.get();
    auto buffers = std::make_unique<channel::PeerBuffers>(channel::PeerBuffers::Parts{
        .bootstrap = *results_[static_cast<size_t>(options_.self)].bootstrap,
        .handoff = handoffs_[static_cast<size_t>(options_.self)],
        .peers = peers_,
        .accelerator = gpu(),
        .clock = steadyClock(),
        .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout),
        .alive = shared->aliveWords()});
    TUTTI_TRY_ASSIGN(
        launcher_,
        GpuLauncher::open({.accelerator = gpu(),
                           .watcher = watcher_,
                           .peers = peers_,
                           .clock = steadyClock(),
                           .segments = std::move(shared),
                           .buffers = std::move(buffers),
                           .recorder = std::move(recorders_[static_cast<size_t>(options_.self)]),
                           .options = {.limits = options_.limits,
                                       .timeout = options_.timeout,
                                       .waitLimit = options_.waitLimit,
                                       .checksPointers = options_.checksPointers}}));
    return {};
  }
  void close() { launcher_.reset(); }

  // Has failed in time, which is a machine's with much else to do.
  bool failsWithin(Nanoseconds bound) {
    const Instant deadline = steadyClock().now() + bound;
    while (!launcher_->hasFailed() && steadyClock().now() < deadline) sleepFor(kWatchInterval / 5);
    return launcher_->hasFailed();
  }

 private:
  template <size_t kSize>
  static void setText(std::array<char, kSize>& field, const std::string& text) {
    std::strncpy(field.data(), text.c_str(), kSize - 1);
  }
  static size_t bytesOfArgument(std::string_view kernel) {
    if (kernel == "tuttiProgramTransfers") return sizeof(wire::GpuProgramTransfers);
    if (kernel.ends_with("Program")) return sizeof(wire::GpuProgramLaunch);
    return kernels::cuda::takesTransfers(kernel) ? sizeof(wire::GpuTransfers)
                                                 : sizeof(wire::GpuLaunch);
  }
  void connect() {
    shared_.resize(count_);
    results_ = job_.runAll([this](bootstrap::Bootstrap& bootstrap) -> Status {
      const auto rank = static_cast<size_t>(index(bootstrap.rank()));
      TUTTI_TRY_ASSIGN(
          channel::PeerSegments::Shared shared,
          channel::PeerSegments::connect({.bootstrap = bootstrap,
                                          .handoff = handoffs_[rank],
                                          .peers = peers_,
                                          .accelerator = gpus_[rank],
                                          .timeout = std::chrono::seconds(20),
                                          .hasPrograms = options_.limits.hasPrograms}));
      shared_[rank] = std::move(shared.segments);
      return {};
    });
    for (const auto& segments : shared_) EXPECT_NE(segments, nullptr);
  }

  Options options_;
  const size_t count_;
  std::vector<bootstrap::Handoff> handoffs_;
  std::vector<device::FakeAccelerator> gpus_;  // what they keep for good uses the line before
  bootstrap::TestJob job_;
  std::vector<bootstrap::PeerInfo> peers_;
  observe::ProcessRecorders siblings_;
  observe::Board board_;
  std::vector<std::unique_ptr<observe::Recorder>> recorders_;  // by rank; the launcher has its own
  std::vector<bootstrap::RankResult> results_;
  std::vector<std::unique_ptr<channel::PeerSegments>> shared_;
  channel::PeerSegments* segments_ = nullptr;  // the launcher's
  GpuWatcher watcher_{kWatchInterval};
  std::unique_ptr<GpuLauncher> launcher_;
};

template <typename Argument>
Argument argumentOf(const device::NotedLaunch& launch) {
  Argument argument;
  EXPECT_EQ(launch.argument.size(), sizeof argument);
  std::memcpy(&argument, launch.argument.data(), std::min(sizeof argument, launch.argument.size()));
  return argument;
}

}  // namespace tutti::launch
