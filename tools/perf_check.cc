#include "tools/perf_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tutti::tools {
namespace {

constexpr unsigned char kPoisonByte = 0xb5;

// Differs from byte to byte, so that a shifted copy of the guard is seen.
std::byte guardByte(size_t index) { return static_cast<std::byte>((index * 29 + 0x5a) & 0xff); }

const unsigned char* asBytes(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

bool isWithin(const Pattern& pattern, size_t index, const unsigned char* element) {
  if (pattern.reference.empty()) return false;
  const double got = loadElement(pattern.type, element);
  return std::fabs(got - pattern.reference[index]) <= pattern.tolerance[index];  // false for NaN
}

// `count` elements that lie in one period of the pattern.
uint64_t countWrongRun(const std::byte* data, const Pattern& pattern, size_t index, size_t count) {
  const size_t elementBytes = sizeOf(pattern.type);
  const unsigned char* expected = pattern.bits.data() + index * elementBytes;
  const unsigned char* got = asBytes(data);
  if (std::memcmp(got, expected, count * elementBytes) == 0) return 0;
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * elementBytes;
    if (std::memcmp(got + at, expected + at, elementBytes) == 0) continue;
    if (!isWithin(pattern, index + i, got + at)) ++wrong;
  }
  return wrong;
}

uint64_t countUnpoisoned(const std::byte* data, size_t count, size_t elementBytes) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const unsigned char* element = asBytes(data) + i * elementBytes;
    const bool kept = std::all_of(element, element + elementBytes,
                                  [](unsigned char byte) { return byte == kPoisonByte; });
    if (!kept) ++wrong;
  }
  return wrong;
}

// Calls visit(first element in the data, index in the period, count) for each run of the segment.
template <typename Visit>
void forEachRun(const Segment& segment, Visit visit) {
  size_t done = 0;
  while (done < segment.count) {
    const size_t index = (segment.phase + done) % kPeriod;
    const size_t count = std::min(kPeriod - index, segment.count - done);
    visit(segment.offset + done, index, count);
    done += count;
  }
}

int previousRank(int rank, int rankCount) { return (rank + rankCount - 1) % rankCount; }

// The result of the call, with offsets from where the call was told to put it.
std::vector<Segment> resultOf(const Call& call, PatternCache& patterns, size_t phase) {
  const int rankCount = patterns.spec().rankCount;
  const size_t count = call.shape.paramCount;
  const size_t ownBlock = phase + static_cast<size_t>(call.rank) * count;
  const bool isRoot = call.rank == call.root;
  const Segment untouched{.offset = 0, .count = call.shape.recvCount};
  std::vector<Segment> result;
  switch (call.operation) {
    case Operation::kAllReduce: return {{0, count, &patterns.reduced(), phase}};
    case Operation::kReduceScatter: return {{0, count, &patterns.reduced(), ownBlock}};
    case Operation::kBroadcast: return {{0, count, &patterns.input(call.root), phase}};
    case Operation::kScatter: return {{0, count, &patterns.input(call.root), ownBlock}};
    case Operation::kSendRecv:
      return {{0, count, &patterns.input(previousRank(call.rank, rankCount)), phase}};
    case Operation::kReduce:
      if (!isRoot) return {untouched};
      return {{0, count, &patterns.reduced(), phase}};
    case Operation::kGather:
      if (!isRoot) return {untouched};
      [[fallthrough]];
    case Operation::kAllGather:
      for (int from = 0; from < rankCount; ++from) {
        const size_t offset = static_cast<size_t>(from) * count;
        result.push_back({offset, count, &patterns.input(from), phase});
      }
      return result;
    case Operation::kAllToAll:
      for (int from = 0; from < rankCount; ++from) {
        const size_t offset = static_cast<size_t>(from) * count;
        result.push_back({offset, count, &patterns.input(from), ownBlock});
      }
      return result;
  }
  return result;
}

bool readsInput(const Call& call) {
  const bool isOnlyRoots =
      call.operation == Operation::kBroadcast || call.operation == Operation::kScatter;
  return !isOnlyRoots || call.rank == call.root;
}

Segment ownInput(const Call& call, PatternCache& patterns, size_t phase) {
  return {.offset = 0,
          .count = call.shape.sendCount,
          .pattern = &patterns.input(call.rank),
          .phase = phase};
}

}  // namespace

void fillSegment(std::span<std::byte> data, const Segment& segment) {
  const size_t elementBytes = sizeOf(segment.pattern->type);
  const unsigned char* bits = segment.pattern->bits.data();
  forEachRun(segment, [&](size_t offset, size_t index, size_t count) {
    std::memcpy(data.data() + offset * elementBytes, bits + index * elementBytes,
                count * elementBytes);
  });
}

uint64_t countWrong(std::span<const std::byte> data, const Segment& segment, size_t elementBytes) {
  const std::byte* start = data.data() + segment.offset * elementBytes;
  if (segment.pattern == nullptr) return countUnpoisoned(start, segment.count, elementBytes);
  uint64_t wrong = 0;
  forEachRun(segment, [&](size_t offset, size_t index, size_t count) {
    wrong += countWrongRun(data.data() + offset * elementBytes, *segment.pattern, index, count);
  });
  return wrong;
}

void poison(std::span<std::byte> data) {
  if (!data.empty()) std::memset(data.data(), kPoisonByte, data.size());
}

void fillGuards(std::span<std::byte> whole, size_t dataBytes) {
  for (size_t i = 0; i < kGuardBytes; ++i) {
    whole[i] = guardByte(i);
    whole[kGuardBytes + dataBytes + i] = guardByte(i);
  }
}

uint64_t countGuardErrors(std::span<const std::byte> whole, size_t dataBytes) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (whole[i] != guardByte(i)) ++wrong;
    if (whole[kGuardBytes + dataBytes + i] != guardByte(i)) ++wrong;
  }
  return wrong;
}

const Pattern& PatternCache::input(int rank) {
  const auto found = inputs_.find(rank);
  if (found != inputs_.end()) return found->second;
  return inputs_.emplace(rank, makeInput(spec_, rank)).first->second;
}

const Pattern& PatternCache::reduced() {
  if (reduced_.empty()) reduced_.push_back(makeReduced(spec_));
  return reduced_.front();
}

Expectation expect(const Call& call, PatternCache& patterns, size_t phase) {
  return {.sent = {ownInput(call, patterns, phase)}, .received = resultOf(call, patterns, phase)};
}

Expectation expectInPlace(const Call& call, PatternCache& patterns, size_t phase) {
  Expectation expectation;
  Segment own = ownInput(call, patterns, phase);
  own.offset = call.shape.sendOffset;
  // The root alone reads; what the others hold before is poison, which the result must replace.
  if (readsInput(call)) expectation.sent.push_back(own);
  const bool keepsInput =
      (call.operation == Operation::kReduce || call.operation == Operation::kGather) &&
      call.rank != call.root;
  if (keepsInput) {
    expectation.received.push_back(own);
    return expectation;
  }
  expectation.received = resultOf(call, patterns, phase);
  for (Segment& segment : expectation.received) segment.offset += call.shape.recvOffset;
  return expectation;
}

}  // namespace tutti::tools
