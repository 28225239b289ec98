// Checks what a collective did to memory: results, what had to stay untouched, and guard bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tools/perf_formulas.h"
#include "tools/perf_options.h"
#include "tools/perf_values.h"

namespace tutti::tools {

// Bytes before and after the data that nobody may write; a page, so that data stays page-aligned.
inline constexpr size_t kGuardBytes = 4096;

// A stretch of a buffer that holds (a part of) a rank's vector or of the reduced one.
struct Segment {
  size_t offset = 0;  // elements from the start of the data
  size_t count = 0;
  const Pattern* pattern = nullptr;  // null: has to hold the poison that was there before
  size_t phase = 0;                  // index of its first element in the pattern, any size
};

// Writes the segment's values. REQUIRES: a pattern.
void fillSegment(std::span<std::byte> data, const Segment& segment);

// Elements of the segment that are not what they have to be.
uint64_t countWrong(std::span<const std::byte> data, const Segment& segment, size_t elementBytes);

// Sets bytes to a value that no result is expected to have by chance.
void poison(std::span<std::byte> data);

// `whole` is guard, data, guard.
void fillGuards(std::span<std::byte> whole, size_t dataBytes);
uint64_t countGuardErrors(std::span<const std::byte> whole, size_t dataBytes);

struct Call {
  Operation operation = Operation::kAllReduce;
  Shape shape = {};
  int rank = 0;
  int root = 0;
};

// The patterns of one type and reduction, made when first needed. One thread.
class PatternCache {
 public:
  explicit PatternCache(const ValueSpec& spec) : spec_(spec) {}

  const ValueSpec& spec() const { return spec_; }
  const Pattern& input(int rank);
  const Pattern& reduced();

 private:
  ValueSpec spec_;
  std::map<int, Pattern> inputs_;  // node-based: segments point into it
  std::vector<Pattern> reduced_;   // none or one
};

// What a rank's buffers hold before and after the call. Offsets are from the start of the buffer.
struct Expectation {
  std::vector<Segment> sent = {};      // of the send buffer: filled before, unchanged after
  std::vector<Segment> received = {};  // of the receive buffer (in place: of the shared one)
};

// `phase` shifts all vectors, so that data left over from an earlier call is seen as wrong.
Expectation expect(const Call& call, PatternCache& patterns, size_t phase);
Expectation expectInPlace(const Call& call, PatternCache& patterns, size_t phase);

}  // namespace tutti::tools
