// Tests only: groups of calls for one rank's launcher, what its GPU has noted of them, and groups
// that a seed draws.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "launch/gpu_rank_testing.h"

namespace tutti::launch {

using device::NotedLaunch;

inline constexpr Nanoseconds kPatience = std::chrono::seconds(20);
inline void* const kStream = reinterpret_cast<void*>(uintptr_t{0x10});
inline void* const kOther = reinterpret_cast<void*>(uintptr_t{0x20});

// Buffers that nobody reads, a different one for each call.
inline std::byte* bufferOf(size_t call) {
  return reinterpret_cast<std::byte*>((uintptr_t{1} << 40) + (call << 32));
}

// The calls of a group, each on a stream.
class Group {
 public:
  Group& add(Collective collective, uint64_t count, DataType type = DataType::kFloat32,
             int32_t peer = 0, ReduceOp op = ReduceOp::kSum) {
    calls_.push_back(
        {.shape =
             {.collective = collective, .type = type, .op = op, .peer = Rank{peer}, .count = count},
         .input = bufferOf(2 * calls_.size()),
         .output = bufferOf(2 * calls_.size() + 1)});
    streams_.push_back(stream_);
    return *this;
  }
  Group& on(void* stream) {
    stream_ = stream;
    return *this;
  }
  const std::vector<Call>& calls() const { return calls_; }
  Status launch(GpuLauncher& launcher) const {
    std::vector<StreamCall> items;
    for (size_t i = 0; i < calls_.size(); ++i)
      items.push_back({.call = &calls_[i], .stream = streams_[i]});
    return launcher.launch(items, items.size() > 1);
  }

 private:
  std::vector<Call> calls_;
  std::vector<void*> streams_;
  void* stream_ = kStream;
};

inline Group allReduces(int count) {
  Group group;
  for (int i = 0; i < count; ++i) group.add(Collective::kAllReduce, static_cast<uint64_t>(i) + 1);
  return group;
}

inline bool isProgram(const NotedLaunch& launch) {
  return launch.kernel.ends_with("Program") || launch.kernel == "tuttiProgramTransfers";
}
inline bool isOfTransfers(const NotedLaunch& launch) {
  return launch.kernel == "tuttiProgramTransfers" || kernels::cuda::takesTransfers(launch.kernel);
}

// What the kernels of a rank have in common.
struct Words {
  const uint32_t* abort;
  wire::GpuError* error;
};
inline Words wordsOf(const NotedLaunch& launch) {
  if (launch.kernel == "tuttiProgramTransfers") {
    const auto view = argumentOf<wire::GpuProgramTransfers>(launch).view;
    return {.abort = view.abortWord, .error = view.error};
  }
  if (isProgram(launch)) {
    const auto view = argumentOf<wire::GpuProgramLaunch>(launch).view;
    return {.abort = view.abortWord, .error = view.error};
  }
  const wire::GpuView view = isOfTransfers(launch) ? argumentOf<wire::GpuTransfers>(launch).view
                                                   : argumentOf<wire::GpuLaunch>(launch).view;
  return {.abort = view.abortWord, .error = view.error};
}
inline bool isAborted(const NotedLaunch& launch) {
  return std::atomic_ref(const_cast<uint32_t&>(*wordsOf(launch).abort)).load() != 0;
}

inline std::unique_ptr<GpuRank> openRank(GpuRank::Options options) {
  auto rank = std::make_unique<GpuRank>(std::move(options));
  const Status status = rank->open();
  EXPECT_TRUE(status.ok()) << status.message();
  return rank;
}

// Collectives as one element each: which, and where it goes to.
using Done = std::pair<Collective, const void*>;
// Sends and receives: the peer, and the buffer.
using Transfer = std::tuple<bool, int32_t, const void*>;

struct Drawn {
  Group group;
  std::vector<Done> collectives;
  std::multiset<Transfer> transfers;
};
inline Drawn drawGroup(SeededRng& rng, int32_t rankCount, int32_t self) {
  const auto draw = [&rng](uint64_t below) { return rng.below(below); };
  Drawn drawn;
  const uint64_t calls = 1 + draw(60);
  for (uint64_t i = 0; i < calls; ++i) {
    const auto collective = static_cast<Collective>(draw(kCollectiveCount));
    const uint64_t count = 1 + draw(uint64_t{1} << draw(24));
    auto peer = static_cast<int32_t>(draw(static_cast<uint64_t>(rankCount)));
    if (isPointToPoint(collective) && peer == self) peer = (self + 1) % rankCount;
    drawn.group.on(draw(3) == 0 ? kOther : kStream)
        .add(collective, count, static_cast<DataType>(draw(kDataTypeCount)), peer,
             draw(2) == 0 ? ReduceOp::kSum : ReduceOp::kMax);
    const Call& call = drawn.group.calls().back();
    if (!isPointToPoint(call)) {
      drawn.collectives.push_back({collective, call.output});
    } else {
      const bool isSend = collective == Collective::kSend;
      drawn.transfers.insert({isSend, peer, isSend ? call.input : call.output});
    }
  }
  return drawn;
}

// A group of every kind of launch on two streams, other than the stream of the call before.
inline Group manyKinds() {
  Group group;
  group.on(kStream);
  for (int i = 0; i < 20; ++i) group.add(Collective::kAllReduce, 100);
  group.add(Collective::kAllReduce, 5'000'000, DataType::kBfloat16).on(kOther);
  group.add(Collective::kAllGather, 3).add(Collective::kAllToAll, 100'000);
  group.add(Collective::kSend, 9, DataType::kInt8, 0).add(Collective::kRecv, 9, DataType::kInt8, 2);
  group.add(Collective::kSend, 9'000'000, DataType::kInt8, 0);
  return group;
}

}  // namespace tutti::launch
