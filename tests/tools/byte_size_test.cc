#include "tools/byte_size.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace tutti::tools {
namespace {

TEST(ByteSizes, AreReadInUnitsOf1024) {
  EXPECT_EQ(parseBytes("8").value(), 8U);
  EXPECT_EQ(parseBytes("64K").value(), 64_KiB);
  EXPECT_EQ(parseBytes("128m").value(), 128_MiB);
  EXPECT_EQ(parseBytes("3GiB").value(), 3_GiB);
  EXPECT_EQ(parseBytes("64kb").value(), 64_KiB);
  EXPECT_EQ(parseBytes("8B").value(), 8U);
  EXPECT_EQ(parseBytes("1.5M").value(), 1536_KiB);
  EXPECT_EQ(parseBytes("1024T").value(), uint64_t{1} << 50);
}

TEST(ByteSizes, AreWrittenAsTheyAreRead) {
  for (const char* text : {"0", "1000", "1K", "1025", "1536K", "64M", "1025M", "3G", "2048G"})
    EXPECT_EQ(shortText(parseBytes(text).value()), text);
}

TEST(ByteSizes, AreRefusedWithTheirText) {
  for (const char* text : {"", "K", "-1", "8 ", "1E", "1e3", "0x8", "nan", "inf", "0.3", "1025T",
                           "99999999999999999999", "18446744073709551617", "99999999999G"}) {
    const auto bytes = parseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_NE(bytes.status().message().find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::tools
