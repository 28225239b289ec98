// Tests only: communicators of GPUs of ordinary memory, with the launchers of all ranks, or of one;
// then there are of the others the segments and the pages on the board.
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
  bool mixesGraphs = true;
  observe::Profiler* profiler = nullptr;
};

// What processes of a rank each have: a GPU, and what its communicators share there.
struct GpuProcesses {
  static constexpr Nanoseconds kWatchInterval = std::chrono::milliseconds(5);

  explicit GpuProcesses(size_t count) : handoffs(count), gpus(count) {}

  std::vector<bootstrap::Handoff> handoffs;
  std::vector<device::FakeAccelerator> gpus;  // what they keep for good uses the line before
  GpuRooms rooms;
  GpuWatcher watcher{kWatchInterval};
  GpuWatcher teller{GpuProfile::kLookInterval};
};

// A communicator of theirs: the segments and the board, and the launchers of those that open one.
class GpuCommunicator {
 public:
  GpuCommunicator(GpuProcesses& processes, GpuRankOptions options)
      : processes_(processes),
        options_(std::move(options)),
        count_(static_cast<size_t>(options_.limits.rankCount)),
        job_(options_.limits.rankCount),
        board_(observe::Board::create(options_.limits.rankCount, "job", options_.timeout.count())
                   .value()),
        launchers_(count_) {
    options_.limits.hasPrograms = needsPrograms(options_.limits);
    for (size_t rank = 0; rank < count_; ++rank) {
      bootstrap::PeerInfo info;
      info.rank = info.deviceIndex = static_cast<int32_t>(rank);
      info.processId = static_cast<int32_t>(1000 + rank);
      info.processHash = rank + 1;
      setText(info.hostName, nodeName(rank));
      setText(info.handoffName, processes_.handoffs[rank].name());
      peers_.push_back(info);
      recorders_.push_back(std::make_unique<observe::Recorder>(
          observe::Board::open(UniqueFd(::fcntl(board_.fd(), F_DUPFD_CLOEXEC, 0))).value(),
          info.rank, nodeName(rank), siblings_));
    }
    for (device::FakeAccelerator& gpu : processes_.gpus) gpu.argumentBytes = bytesOfArgument;
    connect();
  }
  GpuCommunicator(const GpuCommunicator&) = delete;
  GpuCommunicator& operator=(const GpuCommunicator&) = delete;

  static std::string nodeName(size_t rank) { return "node" + std::to_string(rank); }
  std::unique_ptr<GpuLauncher>& launcher(size_t rank) { return launchers_[rank]; }
  channel::PeerSegments* segments() { return segments_; }  // of who opened last
  observe::Board& board() { return board_; }
  observe::Recorder& recorderOf(size_t rank) { return *recorders_[rank]; }
  const std::vector<bootstrap::PeerInfo>& peers() const { return peers_; }

  // The launcher, from the segments that were shared. Once a rank.
  Status open(size_t rank) {
    device::FakeAccelerator& gpu = processes_.gpus[rank];
    auto shared = std::move(shared_[rank]);
    segments_ = shared.get();
    auto buffers = std::make_unique<channel::PeerBuffers>(channel::PeerBuffers::Parts{
        .bootstrap = *results_[rank].bootstrap,
        .handoff = processes_.handoffs[rank],
        .peers = peers_,
        .accelerator = gpu,
        .clock = steadyClock(),
        .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout),
        .alive = shared->aliveWords()});
    TUTTI_TRY_ASSIGN(launchers_[rank],
                     GpuLauncher::open({.accelerator = gpu,
                                        .watcher = processes_.watcher,
                                        .room = processes_.rooms.of(gpu),
                                        .peers = peers_,
                                        .clock = steadyClock(),
                                        .segments = std::move(shared),
                                        .buffers = std::move(buffers),
                                        .recorder = std::move(recorders_[rank]),
                                        .options = {.limits = options_.limits,
                                                    .timeout = options_.timeout,
                                                    .waitLimit = options_.waitLimit,
                                                    .checksPointers = options_.checksPointers,
                                                    .mixesGraphs = options_.mixesGraphs},
                                        .profiler = options_.profiler,
                                        .teller = &processes_.teller}));
    return {};
  }

 private:
  template <size_t kSize>
  static void setText(std::array<char, kSize>& field, const std::string& text) {
    std::strncpy(field.data(), text.c_str(), kSize - 1);
  }
  static size_t bytesOfArgument(std::string_view kernel) {
    if (kernel == "tuttiProgramTransfers") return sizeof(wire::GpuProgramTransfers);
    if (kernel == "tuttiStamp") return sizeof(wire::GpuStamp);
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
                                          .handoff = processes_.handoffs[rank],
                                          .peers = peers_,
                                          .accelerator = processes_.gpus[rank],
                                          .timeout = std::chrono::seconds(20),
                                          .hasPrograms = options_.limits.hasPrograms}));
      shared_[rank] = std::move(shared.segments);
      return {};
    });
    for (const auto& segments : shared_) EXPECT_NE(segments, nullptr);
  }

  GpuProcesses& processes_;
  GpuRankOptions options_;
  const size_t count_;
  bootstrap::TestJob job_;
  std::vector<bootstrap::PeerInfo> peers_;
  observe::ProcessRecorders siblings_;
  observe::Board board_;
  std::vector<std::unique_ptr<observe::Recorder>> recorders_;  // by rank; a launcher has its own
  std::vector<bootstrap::RankResult> results_;
  std::vector<std::unique_ptr<channel::PeerSegments>> shared_;
  channel::PeerSegments* segments_ = nullptr;
  std::vector<std::unique_ptr<GpuLauncher>> launchers_;
};

// One rank of a communicator alone has a launcher.
class GpuRank {
 public:
  using Options = GpuRankOptions;
  static constexpr Nanoseconds kWatchInterval = GpuProcesses::kWatchInterval;

  explicit GpuRank(const Options& options)
      : self_(static_cast<size_t>(options.self)),
        processes_(static_cast<size_t>(options.limits.rankCount)),
        communicator_(processes_, options) {}

  static std::string nodeName(size_t rank) { return GpuCommunicator::nodeName(rank); }
  device::FakeAccelerator& gpu() { return processes_.gpus[self_]; }
  GpuLauncher& launcher() { return *communicator_.launcher(self_); }
  channel::PeerSegments* segments() { return communicator_.segments(); }
  observe::Board& board() { return communicator_.board(); }
  observe::Recorder& recorderOf(size_t rank) { return communicator_.recorderOf(rank); }
  const std::vector<bootstrap::PeerInfo>& peers() const { return communicator_.peers(); }
  size_t rankCount() const { return peers().size(); }

  // Once.
  Status open() { return communicator_.open(self_); }
  void close() { communicator_.launcher(self_).reset(); }

  // Has failed in time, which is a machine's with much else to do.
  bool failsWithin(Nanoseconds bound) {
    const Instant deadline = steadyClock().now() + bound;
    while (!launcher().hasFailed() && steadyClock().now() < deadline) sleepFor(kWatchInterval / 5);
    return launcher().hasFailed();
  }

 private:
  const size_t self_;
  GpuProcesses processes_;
  GpuCommunicator communicator_;
};

template <typename Argument>
Argument argumentOf(const device::NotedLaunch& launch) {
  Argument argument;
  EXPECT_EQ(launch.argument.size(), sizeof argument);
  std::memcpy(&argument, launch.argument.data(), std::min(sizeof argument, launch.argument.size()));
  return argument;
}

}  // namespace tutti::launch
