#include "device/kept_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tutti::device {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Notes its end.
std::shared_ptr<const void> noting(std::vector<int>& ended, int number) {
  return {nullptr, [&ended, number](const void*) { ended.push_back(number); }};
}

TEST(KeptObjects, GoInOrderOnceTheirUsersHaveGone) {
  std::vector<int> ended;
  KeptObjects kept;
  auto first = std::make_shared<int>(), second = std::make_shared<int>();
  kept.keepFor(first, noting(ended, 1));
  kept.keepFor(second, noting(ended, 2));
  kept.keepFor(first, noting(ended, 3));
  kept.dropUnused();
  EXPECT_THAT(ended, IsEmpty());
  first.reset();
  EXPECT_THAT(ended, IsEmpty()) << "whoever lets go last frees nothing";
  kept.dropUnused();
  EXPECT_THAT(ended, ElementsAre(1, 3));
  second.reset();
  kept.dropUnused();
  EXPECT_THAT(ended, ElementsAre(1, 3, 2));
}

TEST(KeptObjects, WithoutUsersGoAtOnce) {
  std::vector<int> ended;
  KeptObjects kept;
  kept.keepFor({}, noting(ended, 1));
  EXPECT_THAT(ended, ElementsAre(1));
}

TEST(KeptObjects, ForGoodGoWithTheirKeeper) {
  std::vector<int> ended;
  {
    KeptObjects kept;
    kept.keepForGood(noting(ended, 1));
    kept.dropUnused();
    EXPECT_THAT(ended, IsEmpty());
  }
  EXPECT_THAT(ended, ElementsAre(1));
}

// As memory whose end keeps something of its own.
TEST(KeptObjects, MayKeepOthersWhenTheyGo) {
  std::vector<int> ended;
  KeptObjects kept;
  auto users = std::make_shared<int>();
  kept.keepFor(users, std::shared_ptr<const void>(
                          nullptr, [&](const void*) { kept.keepFor({}, noting(ended, 2)); }));
  users.reset();
  kept.dropUnused();
  EXPECT_THAT(ended, ElementsAre(2));
}

}  // namespace
}  // namespace tutti::device
