// The movers of slots.cuh's pumps: they copy and fold the bytes that a step's table names.
#pragma once

#include "kernels/cuda/slot_keepers.cuh"

namespace tutti::kernels::cuda {

// The movers. kMost bounds the rank count, so that what is done for each peer is unrolled.
template <int kMost, typename Policy>
class Movers {
 public:
  static constexpr int kPeers = kMost - 1;
  // Loads under way, of each peer's bytes.
  static constexpr int kVectors = kMost == 2 ? 8 : kMost == 4 ? 5 : 1;
  static constexpr int kFoldVectors = kMost > 4 || Policy::kElementBytes == 1 ? 1
                                      : kMost == 2                            ? 4
                                                                              : 3;
  static constexpr int kSumVectors = kMost == 2 ? 8 : kMost == 4 ? 5 : 2;

  __device__ Movers(const GpuCall& call, const GpuView& view, uint32_t mover)
      : policy_(call, view.rank, view.rankCount),
        mover_(mover),
        own_(foldPlace(view, view.rank)),
        rankCount_(view.rankCount) {}

  __device__ __forceinline__ void send(const SlotStep& table) const {
    const auto outgoing = [&](const uint4& raw) { return policy_.outgoing(raw); };
    if (table.same.bytes != 0) spread<8>(peersOf(table.same), mover_, outgoing);
    if (table.hasEach) copy<kVectors, kPeers>(table.each, mover_, outgoing);
    if (table.hasOwn) copyOwn(table);
    if (table.hasCollects) copy<kVectors, kPeers>(table.collects, mover_, AsIs());
  }

  // The input to one peer; what came from it folded. Also of tables with no more than that.
  __device__ __forceinline__ void sendOne(const Spread<1>& range) const {
    spread<8>(range, mover_, [&](const uint4& raw) { return policy_.outgoing(raw); });
  }

  template <typename Table>
  __device__ __forceinline__ void work(const Table& table) const {
    if constexpr (Policy::kFolds) {
      fold(table);
    } else {
      if (table.same.bytes != 0) spread<4>(peersOf(table.same), mover_, AsIs());
      if (table.hasEach) copy<kVectors, kPeers>(table.each, mover_, AsIs());
    }
  }

 private:
  template <int kAll>
  static __device__ __forceinline__ Spread<kPeers> peersOf(const Spread<kAll>& all) {
    Spread<kPeers> some{all.from, all.to, all.bytes, {}};
#pragma unroll
    for (int j = 0; j < kPeers; ++j) some.slots[j] = all.slots[j];
    return some;
  }

  __device__ __forceinline__ void copyOwn(const SlotStep& table) const {
#pragma unroll 1
    for (int part = 0; part < kPeers; ++part) {
      const Range& own = table.own[part];
      spread<8>(Spread<1>{own.from, own.to, own.bytes, {}}, mover_, AsIs());
    }
  }

  // Folds a chunk of all ranks: all are loaded before the first is folded. Sums have code of their
  // own, which leaves registers for more loads under way (2 × H200, 64 MB of floats: reduce-scatter
  // 116.5 -> 114.5 µs, 4 MB 17.5 -> 16.6; 2026-11-22).
  template <typename Table>
  __device__ __forceinline__ void fold(const Table& table) const {
    const Spread<kPeers> result = peersOf(table.same);
    const uint4* folds[kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) folds[p] = reinterpret_cast<const uint4*>(table.folds[p]);
    const uint32_t whole = result.wholeVectors();
    if (policy_.isSum()) {
      foldVectors<kSumVectors>(result, folds, whole, [&](uint4(&raw)[kSumVectors][kMost], int i) {
        return policy_.template sum<kMost>([&](int p) { return raw[i][p]; });
      });
    } else {
      foldVectors<kFoldVectors>(result, folds, whole, [&](uint4(&raw)[kFoldVectors][kMost], int i) {
        if (policy_.scales()) scaleOwn(raw[i]);
        return foldAll(raw[i]);
      });
    }
    // What is left at the end, and everything where a buffer is not aligned.
#pragma unroll 1
    for (uint32_t at = whole + mover_; at * sizeof(uint4) < result.bytes; at += kMovers) {
      foldOne(table, result, at);
    }
  }

  // Whole vectors; made(raw, i) is what becomes of a thread's i-th of a batch.
  template <int kVectors, typename Made>
  __device__ __forceinline__ void foldVectors(const Spread<kPeers>& result,
                                              const uint4* const (&folds)[kMost], uint32_t whole,
                                              const Made& made) const {
    auto* to = reinterpret_cast<uint4*>(result.to);
    eachBatch<kVectors>(whole, mover_, [&](uint32_t base, auto isWhole) {
      uint4 raw[kVectors][kMost];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const bool isThere = isWhole || base + i * kMovers < whole;
#pragma unroll
        for (int p = 0; p < kMost; ++p) {
          raw[i][p] = loadStagedIf(isThere && p < rankCount_, (folds[p] + base) + i * kMovers);
        }
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (!isWhole && base + i * kMovers >= whole) break;
        const uint4 value = made(raw, i);
        result.template storeSlots<kMovers>(base, i, value);
        if (to != nullptr) (to + base)[i * kMovers] = value;
      }
    });
  }

  template <typename Table>
  __device__ __noinline__ void foldOne(const Table& table, const Spread<kPeers>& result,
                                       uint32_t at) const {
    const size_t start = at * sizeof(uint4);
    const auto rest = static_cast<int>(min(result.bytes - start, sizeof(uint4)));
    uint4 raw[kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p < rankCount_) raw[p] = loadAny<uint4>(table.folds[p] + start, rest);
    }
    if (policy_.scales()) scaleOwn(raw);
    const uint4 value = foldAll(raw);
    result.template storeSlots<0>(at, 0, value);
    if (result.to != nullptr) storeAny(result.to + start, value, rest);
  }

  __device__ __forceinline__ uint4 foldAll(const uint4 (&raw)[kMost]) const {
    return policy_.template fold<kMost>([&](int p) { return raw[p]; });
  }

  // By selects: an index that is known only here would keep raw in local memory.
  __device__ __forceinline__ void scaleOwn(uint4 (&raw)[kMost]) const {
    if constexpr (kMost == 2) {
      raw[0] = policy_.outgoing(raw[0]);
    } else {
      uint4 own = raw[0];
#pragma unroll
      for (int p = 1; p < kMost; ++p) own = pick(p == own_, raw[p], own);
      own = policy_.outgoing(own);
#pragma unroll
      for (int p = 0; p < kMost; ++p) raw[p] = pick(p == own_, own, raw[p]);
    }
  }

  const Policy policy_;
  const uint32_t mover_;
  const int own_;  // this rank's place among the folds
  const int rankCount_;
};

}  // namespace tutti::kernels::cuda
