#include "comm/registrations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

using Kind = Registrations::Kind;
using testing::HasSubstr;

TEST(Registrations, GiveEachRangeAHandleThatIsNeverUsedAgain) {
  Registrations all;
  char memory[8] = {};
  void* first = all.add(Kind::kBuffer, memory, 8).value();
  EXPECT_TRUE(all.remove(Kind::kBuffer, first).ok());
  void* second = all.add(Kind::kBuffer, memory, 8).value();
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(all.remove(Kind::kBuffer, first).code(), Code::kInvalidArgument);
  EXPECT_EQ(all.count(), 1u);
}

TEST(Registrations, EndAHandleOnlyByTheCallOfItsKind) {
  Registrations all;
  char memory[8] = {};
  void* window = all.add(Kind::kWindow, memory, 8).value();
  const Status status = all.remove(Kind::kBuffer, window);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ncclCommWindowDeregister ends"));
  EXPECT_EQ(all.count(), 1u);
  EXPECT_TRUE(all.remove(Kind::kWindow, window).ok());
  EXPECT_EQ(all.count(), 0u);
}

TEST(Registrations, RefuseRangesThatAreNone) {
  Registrations all;
  char memory[8] = {};
  EXPECT_EQ(all.add(Kind::kBuffer, nullptr, 8).takeStatus().code(), Code::kInvalidArgument);
  EXPECT_EQ(all.add(Kind::kWindow, memory, 0).takeStatus().code(), Code::kInvalidArgument);
  EXPECT_EQ(all.add(Kind::kBuffer, memory, SIZE_MAX).takeStatus().code(), Code::kInvalidArgument);
  EXPECT_EQ(all.count(), 0u);
}

}  // namespace
}  // namespace tutti::comm
