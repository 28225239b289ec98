// Tests only: a rank's calls, and what a batcher makes of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/gpu_batch.h"
#include "launch/stream_calls.h"

namespace tutti::launch {

struct Emitted {
  bool isTransfers = false;
  std::string kernel;
  int32_t blocks = 0;
  int32_t threads = 0;
  uint32_t sharedBytes = 0;
  bool isBulk = false;
  std::vector<wire::GpuCall> calls{};
  std::vector<wire::GpuTransfer> transfers{};
  std::vector<wire::GpuReach> reaches{};
  std::optional<EngineWork> engines{};
  std::optional<wire::GpuProgramLaunch> program{};
  std::optional<wire::GpuProgramTransfers> programTransfers{};
};

class GpuBatchTest : public testing::Test {
 protected:
  static constexpr int32_t kRank = 1;

  GpuBatcher make(int32_t rankCount = 4, bool prefersEngines = false, bool hasBulk = false) const {
    wire::GpuView view{};
    view.rank = kRank;
    view.rankCount = rankCount;
    return GpuBatcher(view, {.rankCount = rankCount,
                             .maxBlocks = hasBulk ? 32 : wire::kGpuMaxBlocks,
                             .prefersEngines = prefersEngines,
                             .hasBulk = hasBulk});
  }
  void add(Collective collective, uint64_t count, int peer = 0,
           DataType type = DataType::kFloat32) {
    calls_.push_back(
        {.shape = {.collective = collective, .type = type, .peer = Rank{peer}, .count = count},
         .input = in_,
         .output = out_});
  }
  std::vector<Emitted> build(GpuBatcher& batcher) {
    std::vector<StreamCall> items;
    for (const Call& call : calls_) items.push_back({.call = &call});
    status_ = checkSelfTransfers(items, Rank{kRank});
    std::vector<Emitted> emitted;
    if (!status_.ok()) return emitted;
    const auto find = [&](const void* buffer, size_t bytes, wire::GpuReach& reach) {
      asked_.push_back({buffer, bytes});
      if (!std::ranges::count(reached_, buffer)) return false;
      std::ranges::fill(reach.output, kElsewhere);
      reach.alive = &alive_;
      return true;
    };
    status_ = batcher.build(
        items, find,
        [&](const GpuBatch& batch) -> Status {
          Emitted& one = emitted.emplace_back();
          one.kernel = batch.choice.kernel;
          one.blocks = batch.blocks;
          one.threads = batch.choice.threads;
          one.sharedBytes = batch.sharedBytes;
          one.isTransfers = batch.transfers != nullptr;
          if (batch.engines != nullptr) one.engines = *batch.engines;
          if (batch.program != nullptr) one.program = *batch.program;
          if (batch.programTransfers != nullptr) one.programTransfers = *batch.programTransfers;
          if (one.program || one.programTransfers) return {};
          if (one.isTransfers) {
            one.transfers.assign(batch.transfers->transfers,
                                 batch.transfers->transfers + batch.transfers->transferCount);
          } else {
            one.isBulk = batch.collectives->isBulk != 0;
            one.calls.assign(batch.collectives->calls,
                             batch.collectives->calls + batch.collectives->callCount);
            one.reaches.assign(batch.collectives->reaches,
                               batch.collectives->reaches + batch.collectives->reachCount);
          }
          return {};
        },
        [&](const void* buffer, size_t, GpuBatcher::Places& theirs) {
          theirs.fill(theirs_);
          for (const int32_t rank : unmapped_) theirs[static_cast<size_t>(rank)] = nullptr;
          return buffer == inWindow_;
        });
    return emitted;
  }

  // Where peers have what is reached; not read.
  static inline std::byte* const kElsewhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  static constexpr uint64_t kLong = uint64_t{64} << 20;  // floats

  alignas(16) char in_[32] = {};
  alignas(16) char out_[32] = {};
  uint32_t alive_ = 1;
  const void* inWindow_ = nullptr;    // an output
  std::byte* theirs_ = nullptr;       // where peers have it
  std::vector<int32_t> unmapped_;     // peers that do not
  std::vector<const void*> reached_;  // buffers that peers have mapped
  std::vector<std::pair<const void*, size_t>> asked_;
  std::vector<Call> calls_;
  Status status_;
};

}  // namespace tutti::launch
