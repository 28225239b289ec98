// Tests only: GPUs that run what a FakeAccelerator has noted, as far as order and room go: blocks
// lie on multiprocessors, start in an order that a seed says, and end when those of the other ranks
// are there. Nothing left to do but work left over: that program hangs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/fake_accelerator_testing.h"

namespace tutti::launch {

// A launch on one GPU.
struct GpuWork {
  // Of which call it is a rank's part: the communicator, and the how many-th of its launches. None:
  // the user's, which waits for nobody.
  std::optional<std::pair<size_t, size_t>> call{};
  uint32_t blocks = 1;
  uint32_t perMultiprocessor = 1;
  bool hasWaves = false;          // block i waits for the blocks i only
  std::vector<size_t> after{};    // places of the works that end before it starts
  std::optional<size_t> early{};  // the one of them beside which it may already be there
};

class GpuMachine {
 public:
  GpuMachine(size_t gpuCount, uint32_t multiprocessors, SeededRng& rng)
      : rng_(rng), spreads_(rng.below(2) == 0), gpus_(gpuCount) {
    for (Gpu& gpu : gpus_) gpu.loads.assign(multiprocessors, 0);
  }

  // In the order of the launches.
  size_t add(size_t gpu, GpuWork work) {
    auto& works = gpus_[gpu].works;
    if (work.call) calls_[*work.call].push_back({gpu, works.size()});
    works.push_back({.work = std::move(work)});
    works.back().places.assign(works.back().work.blocks, kNowhere);
    return works.size() - 1;
  }
  // Until all has ended. Otherwise what stands still.
  std::string run() {
    while (hasWork()) {
      if (!step()) return standstill();
    }
    return {};
  }

 private:
  static constexpr int32_t kWhole = 12;
  static constexpr size_t kNowhere = SIZE_MAX;
  struct Entry {
    GpuWork work;
    std::vector<size_t> places{};  // multiprocessors, by block
    uint32_t started = 0;          // blocks start in order
    uint32_t ended = 0;
    std::vector<bool> hasEnded{};
  };
  struct Gpu {
    std::vector<int32_t> loads;
    std::vector<Entry> works;
  };
  struct Part {
    size_t gpu;
    size_t work;
  };
  Entry& entry(const Part& part) { return gpus_[part.gpu].works[part.work]; }

  static bool isOver(const Entry& one) { return one.ended == one.work.blocks; }
  bool hasWork() const {
    return std::ranges::any_of(
        gpus_, [](const Gpu& gpu) { return !std::ranges::all_of(gpu.works, isOver); });
  }
  // All that it comes after, but for `skipped`.
  bool isNext(const Gpu& gpu, const Entry& one, std::optional<size_t> skipped) const {
    return std::ranges::all_of(one.work.after, [&](size_t before) {
      return before == skipped || isOver(gpu.works[before]);
    });
  }
  bool hasBegun(const Gpu& gpu, const Entry& one) const { return isNext(gpu, one, std::nullopt); }
  // Beside one that has let it come: all of whose blocks are there and have begun.
  bool mayStart(const Gpu& gpu, const Entry& one) const {
    if (!one.work.early) return hasBegun(gpu, one);
    const Entry& first = gpu.works[*one.work.early];
    return first.started == first.work.blocks && hasBegun(gpu, first) &&
           isNext(gpu, one, one.work.early);
  }

  // One GPU's block, or all that has room of a launch; or what can end of one. Whichever comes
  // first from a place that is drawn.
  bool step() {
    std::vector<Part> parts;
    for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      for (size_t work = 0; work < gpus_[gpu].works.size(); ++work) {
        if (!isOver(gpus_[gpu].works[work])) parts.push_back({gpu, work});
      }
    }
    const size_t first = rng_.below(parts.size());
    const bool startsFirst = rng_.below(4) != 0;
    for (const bool starts : {startsFirst, !startsFirst}) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const Part& part = parts[(first + i) % parts.size()];
        if (starts ? start(part) : end(part)) return true;
      }
    }
    return false;
  }
  bool start(const Part& part) {
    Gpu& gpu = gpus_[part.gpu];
    Entry& one = entry(part);
    if (one.started == one.work.blocks || !mayStart(gpu, one)) return false;
    const int32_t need = kWhole / static_cast<int32_t>(one.work.perMultiprocessor);
    const uint32_t before = one.started;
    one.hasEnded.resize(one.work.blocks);
    while (one.started < one.work.blocks) {
      const std::optional<size_t> place = findPlace(gpu, need);
      if (!place) break;
      gpu.loads[*place] += need;
      one.places[one.started++] = *place;
    }
    return one.started != before;
  }
  std::optional<size_t> findPlace(const Gpu& gpu, int32_t need) {
    const size_t from = rng_.below(gpu.loads.size());
    std::optional<size_t> best;
    for (size_t i = 0; i < gpu.loads.size(); ++i) {
      const size_t place = (from + i) % gpu.loads.size();
      if (gpu.loads[place] + need > kWhole) continue;
      if (!spreads_) return place;
      if (!best || gpu.loads[place] < gpu.loads[*best]) best = place;
    }
    return best;
  }
  bool end(const Part& part) {
    Gpu& gpu = gpus_[part.gpu];
    Entry& one = entry(part);
    if (!hasBegun(gpu, one)) return false;
    const uint32_t before = one.ended;
    for (uint32_t block = 0; block < one.started; ++block) {
      if (one.hasEnded[block] || !isMet(one, block)) continue;
      one.hasEnded[block] = true;
      ++one.ended;
      gpu.loads[one.places[block]] -= kWhole / static_cast<int32_t>(one.work.perMultiprocessor);
    }
    return one.ended != before;
  }
  // All ranks are there with the same block, or with all.
  bool isMet(const Entry& one, uint32_t block) {
    if (!one.work.call) return true;
    return std::ranges::all_of(calls_[*one.work.call], [&](const Part& part) {
      const Entry& other = entry(part);
      const uint32_t needed = one.work.hasWaves ? block + 1 : other.work.blocks;
      return other.started >= needed && hasBegun(gpus_[part.gpu], other);
    });
  }
  std::string standstill() const {
    std::string text = "nothing goes on:";
    for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      for (const Entry& one : gpus_[gpu].works) {
        if (isOver(one) || !hasBegun(gpus_[gpu], one) || !one.work.call) continue;
        text += " GPU " + std::to_string(gpu) + " call " + std::to_string(one.work.call->second) +
                " of communicator " + std::to_string(one.work.call->first) + " has " +
                std::to_string(one.started - one.ended) + " of " +
                std::to_string(one.work.blocks - one.ended) + " blocks there;";
      }
    }
    return text;
  }

  SeededRng& rng_;
  const bool spreads_;  // blocks over the multiprocessors; otherwise they go anywhere
  std::vector<Gpu> gpus_;
  std::map<std::pair<size_t, size_t>, std::vector<Part>> calls_;
};

}  // namespace tutti::launch
