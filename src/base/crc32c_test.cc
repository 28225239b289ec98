#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/rng.h"

namespace tutti {
namespace {

std::vector<std::byte> bytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> randomBytes(size_t count) {
  std::vector<std::byte> bytes(count);
  SeededRng(count).fill(bytes);
  return bytes;
}

// RFC 3720, appendix B.4, and the check value of the catalogues of CRCs.
TEST(Crc32c, IsThePublishedOne) {
  const std::vector<std::byte> zeros(32);
  const std::vector<std::byte> ones(32, std::byte{0xff});
  std::vector<std::byte> rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<std::byte>(i));
  for (const auto& sum : {crc32c, crc32cByTables}) {
    EXPECT_EQ(sum(zeros, 0), 0x8a9136aau);
    EXPECT_EQ(sum(ones, 0), 0x62a8ab43u);
    EXPECT_EQ(sum(rising, 0), 0x46dd794eu);
    EXPECT_EQ(sum(bytesOf("123456789"), 0), 0xe3069283u);
    EXPECT_EQ(sum({}, 0), 0u);
  }
}

TEST(Crc32c, IsTheSameByTablesForAnyLengthAndAlignment) {
  for (const size_t count : {0, 1, 7, 8, 9, 63, 1024, 3071, 3072, 3073, 6145, 10'000, 70'001}) {
    const std::vector<std::byte> bytes = randomBytes(count + 8);
    for (size_t offset = 0; offset < 8; ++offset) {
      const auto part = std::span(bytes).subspan(offset, count);
      EXPECT_EQ(crc32c(part), crc32cByTables(part)) << count << " from " << offset;
    }
  }
}

TEST(Crc32c, GoesOnBehindAnotherPart) {
  const std::vector<std::byte> bytes = randomBytes(5000);
  for (const size_t cut : {0, 1, 100, 3072, 4999, 5000}) {
    const uint32_t first = crc32c(std::span(bytes).first(cut));
    EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), first), crc32c(bytes)) << cut;
  }
}

TEST(Crc32c, ChangesWithEachBit) {
  std::vector<std::byte> bytes = randomBytes(4000);
  const uint32_t before = crc32c(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= mask;
    EXPECT_NE(crc32c(bytes), before) << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace tutti
