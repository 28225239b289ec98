#include "bootstrap/unique_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <span>

#include "base/char_field.h"

namespace tutti::bootstrap {
namespace {

using ::testing::HasSubstr;

UniqueId someId() {
  SeededRng rng(3);
  UniqueId id;
  rng.fill(std::as_writable_bytes(std::span(id.address)));
  rng.fill(std::as_writable_bytes(std::span(id.job)));
  rng.fill(std::as_writable_bytes(std::span(id.secret)));
  id.createdSeconds = 1234567890123;
  id.maker = makerOn("node7.cluster.example");
  return id;
}

void expectRefused(const std::array<std::byte, kUniqueIdBytes>& bytes, const char* why) {
  const Result<UniqueId> result = decode(bytes);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(why));
}

TEST(UniqueId, SurvivesEncodingAndDecoding) {
  const UniqueId id = someId();
  const Result<UniqueId> back = decode(encode(id));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().address, id.address);
  EXPECT_EQ(back.value().job, id.job);
  EXPECT_EQ(back.value().secret, id.secret);
  EXPECT_EQ(back.value().createdSeconds, id.createdSeconds);
  EXPECT_EQ(describe(back.value().maker), fmt::format("process {} on node7", ::getpid()));
}

TEST(UniqueId, NamesNoMakerWhereNoneWasTold) {
  UniqueId id = someId();
  id.maker = {};
  EXPECT_EQ(describe(decode(encode(id)).value().maker), "");
}

TEST(UniqueId, ShowsAnyHostOfAMaker) {
  EXPECT_EQ(textOf(makerOn("a-host-with-a-name-of-many-letters").hostName), "a-host-with-a-name-");
  Maker maker{.processId = 7};
  maker.hostName.fill('\x1b');  // without an end
  EXPECT_EQ(describe(maker), "process 7 on " + std::string(maker.hostName.size(), '?'));
}

TEST(UniqueId, RefusesZerosWithAHint) { expectRefused({}, "was ncclGetUniqueId called on rank 0"); }

TEST(UniqueId, RefusesGarbageAsAnotherLibrarys) {
  std::array<std::byte, kUniqueIdBytes> bytes;
  SeededRng rng(9);
  rng.fill(bytes);
  expectRefused(bytes, "no unique id of this library");
}

TEST(UniqueId, RefusesAnotherVersionNamingBoth) {
  auto bytes = encode(someId());
  bytes[3] = std::byte{9};
  expectRefused(bytes, "layout version 9, this library reads version 1");
}

TEST(UniqueId, FindsTruncationAtAnyByte) {
  for (size_t kept = 4; kept < kUniqueIdBytes; ++kept) {
    auto bytes = encode(someId());
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(kept), bytes.end(), std::byte{0});
    if (bytes == encode(someId())) continue;  // the cut bytes were zero
    expectRefused(bytes, "cut or garbled");
  }
}

TEST(UniqueId, FindsAnyChangedByte) {
  for (size_t at = 4; at < kUniqueIdBytes; ++at) {
    auto bytes = encode(someId());
    bytes[at] ^= std::byte{0x40};
    expectRefused(bytes, "cut or garbled");
  }
}

}  // namespace
}  // namespace tutti::bootstrap
