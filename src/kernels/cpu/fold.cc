#include "kernels/cpu/fold.h"

#include <algorithm>
#include <cstring>

#include "base/copy_memory.h"

namespace tutti::kernels::cpu {
namespace {

// Elements folded at a time when there are accumulators to keep or more than one destination: what
// a block touches besides the sources (two of accumulators, one a destination) stays in a 32 KiB
// L1.
constexpr size_t kBlockElements = 1024;
// The same where some are stored past the cache: loads of the next block go on beside such stores
// of this one. Blocks of 4 KiB take 1.2 times as long (2 ranks, 64 MB, two loads and two stores of
// an element; Intel Xeon VM, model 167, 2026-11-23).
constexpr size_t kStreamedBlockBytes = 1024;
constexpr size_t kLargestAccumulator = 8;
constexpr size_t kLargestElement = 8;
static_assert(kBlockElements % kLineBytes == 0 && kStreamedBlockBytes <= kBlockElements);

// The source to multiply first; -1: none.
int32_t scaledSource(const FoldSpec& spec, const FoldArgs& args) {
  return spec.op == ReduceOp::kPreMulSum ? args.scaledSource : -1;
}

bool divides(const FoldSpec& spec, const FoldArgs& args) {
  return spec.op == ReduceOp::kAvg && args.post && spec.rankCount > 1;
}

void copyTo(Bytes to, ConstBytes from, size_t bytes) {
  if (to != from) copyMemory(to, from, bytes);
}

// One fold call: what it does, decided once, and its blocks.
class Folder {
 public:
  Folder(const FoldTable& table, const FoldSpec& spec, const FoldArgs& args)
      : spec_(spec),
        args_(args),
        loops_(table.types[static_cast<size_t>(spec.type)]),
        accumulatorLoops_(loops_.widen == nullptr
                              ? loops_
                              : table.types[static_cast<size_t>(DataType::kFloat32)]),
        combine_(static_cast<size_t>(combineOf(spec.op))),
        elementSize_(sizeOf(spec.type)),
        scaled_(scaledSource(spec, args)),
        divides_(divides(spec, args)),
        streamedCount_(table.stream != nullptr && canStream(args) ? args.streamedCount : 0),
        stream_(table.stream),
        fence_(table.fenceStreams) {}

  void run() {
    const bool plain = scaled_ < 0 && !divides_;
    const size_t sourceCount = args_.sources.size();
    // Without accumulators or a second destination there is nothing to keep in cache: the whole
    // buffer is one block.
    const bool whole = plain && args_.destinations.size() == 1 && streamedCount_ == 0 &&
                       (sourceCount <= 2 || (sourceCount == 3 && isNative()));
    const size_t most = streamedCount_ > 0 ? kStreamedBlockBytes / elementSize_ : kBlockElements;
    const size_t blockElements = whole ? args_.elementCount : most;
    alignas(kLineBytes) std::byte results[kBlockElements * kLargestElement];
    for (size_t done = 0; done < args_.elementCount; done += count_) {
      offset_ = done * elementSize_;
      count_ = std::min({blockElements, args_.elementCount - done, elementsToLine()});
      const size_t streamed = isWholeLines() ? streamedCount_ : 0;
      const bool isKept = streamed < args_.destinations.size();
      result_ = isKept ? destination(streamed) : results;
      if (plain && sourceCount == 1) {
        if (isKept) copyTo(result_, source(0), count_ * elementSize_);
      } else if (plain && sourceCount == 2) {
        loops_.pair[combine_](result_, source(0), source(1), count_);
      } else {
        foldBlock();
      }
      const bool isCopy = plain && sourceCount == 1;
      for (size_t i = 0; i < streamed; ++i)
        stream_(destination(i), isCopy ? source(0) : result_, count_ * elementSize_);
      for (size_t i = streamed + 1; i < args_.destinations.size(); ++i)
        copyTo(destination(i), result_, count_ * elementSize_);
    }
    if (streamedCount_ > 0) fence_();
  }

 private:
  // A buffer that is read here as well has its lines in the cache already.
  static bool canStream(const FoldArgs& args) {
    const auto pastLine = [](const void* memory) {
      return reinterpret_cast<uintptr_t>(memory) % kLineBytes;
    };
    const auto streamed = args.destinations.first(args.streamedCount);
    return std::ranges::all_of(streamed, [&](const void* to) {
      return pastLine(to) == pastLine(streamed[0]) &&
             std::ranges::find(args.sources, to) == args.sources.end();
    });
  }
  // How many elements bring the destination to the start of a line, if any; else no limit.
  size_t elementsToLine() const {
    const size_t past = reinterpret_cast<uintptr_t>(destination(0)) % kLineBytes;
    if (streamedCount_ == 0 || past == 0 || past % elementSize_ != 0) return SIZE_MAX;
    return (kLineBytes - past) / elementSize_;
  }
  bool isWholeLines() const {
    return reinterpret_cast<uintptr_t>(destination(0)) % kLineBytes == 0 &&
           count_ * elementSize_ % kLineBytes == 0;
  }
  bool isNative() const { return loops_.widen == nullptr; }
  bool isScaled(size_t index) const { return static_cast<int64_t>(index) == scaled_; }
  ConstBytes source(size_t index) const {
    return static_cast<ConstBytes>(args_.sources[index]) + offset_;
  }
  Bytes destination(size_t index) const {
    return static_cast<Bytes>(args_.destinations[index]) + offset_;
  }

  // A source as accumulators, scaled if it is the one to scale; in `buffer`, or where it lies.
  ConstBytes asAccumulators(size_t index, Bytes buffer) const {
    ConstBytes values = source(index);
    if (!isNative()) {
      loops_.widen(buffer, values, count_);
      values = buffer;
    }
    if (isScaled(index)) {
      loops_.scale(buffer, values, spec_.preScale, count_);
      values = buffer;
    }
    return values;
  }

  // Accumulates all sources of the block in their order, then writes the first destination. That
  // may be any of the sources, so it is written only by the step that reads the last of them.
  void foldBlock() {
    alignas(64) std::byte accumulators[kBlockElements * kLargestAccumulator];
    alignas(64) std::byte scaled[kBlockElements * kLargestAccumulator];
    const size_t sourceCount = args_.sources.size();
    const bool direct = isNative() && !divides_;
    ConstBytes current = asAccumulators(0, accumulators);
    for (size_t next = 1; next < sourceCount;) {
      const bool takesTwo = next + 1 < sourceCount && !isScaled(next) && !isScaled(next + 1);
      const size_t after = next + (takesTwo ? 2 : 1);
      Bytes out = direct && after == sourceCount ? result_ : accumulators;
      if (takesTwo) {
        loops_.extend2[combine_](out, current, source(next), source(next + 1), count_);
      } else if (isScaled(next)) {
        accumulatorLoops_.pair[combine_](out, current, asAccumulators(next, scaled), count_);
      } else {
        loops_.extend[combine_](out, current, source(next), count_);
      }
      current = out;
      next = after;
    }
    finish(current);
  }

  void finish(ConstBytes accumulators) const {
    if (divides_) {
      loops_.divide(result_, accumulators, spec_.rankCount, count_);
    } else if (!isNative()) {
      loops_.narrow(result_, accumulators, count_);
    } else {
      copyTo(result_, accumulators, count_ * elementSize_);
    }
  }

  const FoldSpec& spec_;
  const FoldArgs& args_;
  const TypeLoops& loops_;
  const TypeLoops& accumulatorLoops_;
  const size_t combine_;
  const size_t elementSize_;
  const int32_t scaled_;  // index of the source to scale; -1: none
  const bool divides_;
  const size_t streamedCount_;  // of the destinations, the first
  const StreamLoop stream_;
  void (*const fence_)();
  Bytes result_ = nullptr;  // of the block: the first kept destination, or what is streamed
  size_t offset_ = 0;       // of the block at hand, in bytes
  size_t count_ = 0;        // its elements
};

}  // namespace

Combine combineOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return Combine::kProd;
    case ReduceOp::kMax: return Combine::kMax;
    case ReduceOp::kMin: return Combine::kMin;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPreMulSum: return Combine::kSum;
  }
  return Combine::kSum;
}

void foldWith(const FoldTable& table, const FoldSpec& spec, const FoldArgs& args) {
  // The hot shape, without the few nanoseconds of arranging anything: two sources, one destination.
  if (args.sources.size() == 2 && args.destinations.size() == 1 && args.streamedCount == 0 &&
      scaledSource(spec, args) < 0 && !divides(spec, args)) {
    const TypeLoops& loops = table.types[static_cast<size_t>(spec.type)];
    loops.pair[static_cast<size_t>(combineOf(spec.op))](
        static_cast<Bytes>(args.destinations[0]), static_cast<ConstBytes>(args.sources[0]),
        static_cast<ConstBytes>(args.sources[1]), args.elementCount);
    return;
  }
  Folder(table, spec, args).run();
}

}  // namespace tutti::kernels::cpu
