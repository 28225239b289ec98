#include "bootstrap/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kTypeAt = 4;
constexpr size_t kReservedAt = 6;
constexpr size_t kCounterAt = 8;

std::vector<std::byte> bytesOf(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class FrameTest : public ::testing::Test {
 protected:
  std::vector<std::byte> encode(const std::string& text) {
    std::vector<std::byte> out;
    encoder.append(FrameType::kMessage, {}, bytesOf(text), out);
    return out;
  }

  Key key;
  FrameEncoder encoder{key};
  FrameDecoder decoder{key};
  std::vector<Frame> frames;
};

TEST_F(FrameTest, BringsFramesThroughInOrder) {
  std::vector<std::byte> wire = encode("one");
  encoder.append(FrameType::kReport, bytesOf("t"), bytesOf("wo"), wire);
  ASSERT_EQ(decoder.feed(wire, frames), FrameFault::kNone);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].payload, bytesOf("one"));
  EXPECT_EQ(frames[1].type, FrameType::kReport);
  EXPECT_EQ(frames[1].payload, bytesOf("two"));
  EXPECT_TRUE(decoder.isAtBoundary());
}

TEST_F(FrameTest, TakesItsBytesOneByOne) {
  const std::vector<std::byte> wire = encode("hello");
  for (size_t i = 0; i < wire.size(); ++i) {
    ASSERT_TRUE(frames.empty());
    ASSERT_EQ(decoder.feed(std::span(wire).subspan(i, 1), frames), FrameFault::kNone);
  }
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].payload, bytesOf("hello"));
}

TEST_F(FrameTest, CutAtAnyByteGivesNoFrameAndKnowsThatItIsInTheMiddle) {
  const std::vector<std::byte> wire = encode("hello");
  for (size_t cut = 0; cut < wire.size(); ++cut) {
    FrameDecoder fresh(key);
    std::vector<Frame> none;
    ASSERT_EQ(fresh.feed(std::span(wire).first(cut), none), FrameFault::kNone);
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(fresh.isAtBoundary(), cut == 0);
  }
}

TEST_F(FrameTest, AnyChangedBitIsFound) {
  const std::vector<std::byte> wire = encode("hello");
  for (size_t bit = 0; bit < wire.size() * 8; ++bit) {
    std::vector<std::byte> changed = wire;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    FrameDecoder fresh(key);
    std::vector<Frame> none;
    const FrameFault fault = fresh.feed(changed, none);
    // A larger length makes the decoder wait for more; what follows cannot make it a good frame.
    if (fault == FrameFault::kNone) {
      EXPECT_LT(bit, 32u);
      EXPECT_FALSE(fresh.isAtBoundary());
    }
    EXPECT_TRUE(none.empty()) << "bit " << bit;
  }
}

TEST_F(FrameTest, RefusesLengthsOutOfBoundsBeforeItSetsMemoryAside) {
  const auto limit = static_cast<uint32_t>(maxPayloadBytes(FrameType::kMessage));
  for (uint32_t length : {0u, limit + 1, 0x80000000u, 0xffffffffu}) {
    std::vector<std::byte> wire = encode("hello");
    storeLittle(wire.data(), length);
    FrameDecoder fresh(key);
    EXPECT_EQ(fresh.feed(std::span(wire).first(kFrameHeaderBytes), frames), FrameFault::kLength);
    encoder = FrameEncoder(key);
  }
}

TEST_F(FrameTest, HoldsEachTypeToItsOwnLimit) {
  std::vector<std::byte> wire = encode("hello");
  storeLittle(&wire[kTypeAt], static_cast<uint16_t>(FrameType::kReport));
  storeLittle(wire.data(), static_cast<uint32_t>(maxPayloadBytes(FrameType::kReport) + 1));
  EXPECT_EQ(decoder.feed(wire, frames), FrameFault::kLength);
}

TEST_F(FrameTest, RefusesUnknownTypesAndReservedBits) {
  std::vector<std::byte> wire = encode("hello");
  storeLittle(&wire[kTypeAt], uint16_t{999});
  EXPECT_EQ(FrameDecoder(key).feed(wire, frames), FrameFault::kType);
  storeLittle(&wire[kTypeAt], static_cast<uint16_t>(FrameType::kMessage));
  storeLittle(&wire[kReservedAt], uint16_t{1});
  EXPECT_EQ(FrameDecoder(key).feed(wire, frames), FrameFault::kReserved);
}

TEST_F(FrameTest, RefusesARepeatedAMissingAndAReorderedFrame) {
  const std::vector<std::byte> first = encode("first");
  const std::vector<std::byte> second = encode("second");
  ASSERT_EQ(decoder.feed(first, frames), FrameFault::kNone);
  EXPECT_EQ(FrameDecoder(key).feed(second, frames), FrameFault::kCounter);
  EXPECT_EQ(decoder.feed(first, frames), FrameFault::kCounter);
  EXPECT_EQ(frames.size(), 1u);
}

TEST_F(FrameTest, HearsNothingMoreAfterAFault) {
  std::vector<std::byte> wire = encode("hello");
  wire.back() ^= std::byte{1};
  ASSERT_EQ(decoder.feed(wire, frames), FrameFault::kMac);
  EXPECT_EQ(decoder.feed(encode("again"), frames), FrameFault::kMac);
  EXPECT_TRUE(frames.empty());
}

TEST_F(FrameTest, RefusesTheKeyOfTheOtherDirection) {
  Key other;
  other.bytes()[0] = 1;
  EXPECT_EQ(FrameDecoder(other).feed(encode("hello"), frames), FrameFault::kMac);
}

TEST(FrameFuzz, RandomBytesAndRandomDamageNeverGiveAFrameThatWasNotSent) {
  SeededRng rng(5);
  const Key key;
  for (int round = 0; round < 2'000; ++round) {
    FrameEncoder encoder(key);
    std::vector<std::byte> wire;
    std::vector<std::byte> payload(1 + rng.below(100));
    rng.fill(payload);
    encoder.append(FrameType::kMessage, {}, payload, wire);
    encoder.append(FrameType::kCollective, {}, payload, wire);
    const size_t damaged = rng.below(wire.size());
    std::vector<std::byte> noise(1 + rng.below(8));
    rng.fill(noise);
    const size_t count = std::min(noise.size(), wire.size() - damaged);
    std::copy_n(noise.begin(), count, wire.begin() + static_cast<ptrdiff_t>(damaged));
    FrameDecoder decoder(key);
    std::vector<Frame> frames;
    std::span<const std::byte> rest = wire;
    while (!rest.empty()) {
      const size_t piece = std::min(rest.size(), static_cast<size_t>(1 + rng.below(50)));
      static_cast<void>(decoder.feed(rest.first(piece), frames));
      rest = rest.subspan(piece);
    }
    for (const Frame& frame : frames) EXPECT_EQ(frame.payload, payload);
  }
}

}  // namespace
}  // namespace tutti::bootstrap
