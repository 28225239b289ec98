#include "comm/subgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>

#include "bootstrap/directory.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

// Ranks of one process, each on a thread, with a bootstrap but no communicator.
void onRanks(int32_t count, const std::function<void(bootstrap::Bootstrap&)>& body) {
  SeededRng rng(7);
  bootstrap::Directory directory(rng);
  const bootstrap::UniqueId id = bootstrap::makeLocalUniqueId(directory, systemRng());
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      bootstrap::Bootstrap::Options options;
      options.id = id;
      options.rank = Rank{rank};
      options.rankCount = count;
      auto bootstrap = bootstrap::Bootstrap::connect(directory, options);
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().message();
      body(**bootstrap);
      EXPECT_TRUE((*bootstrap)->barrier().ok());  // nobody leaves early
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Subgroup groupOf(bootstrap::Bootstrap& bootstrap, const std::vector<Rank>& members) {
  return {.bootstrap = bootstrap,
          .members = members,
          .tag = uint64_t{0x5350} << 48,
          .timeout = std::chrono::milliseconds(10'000),
          .abort = nullptr,
          .what = "a test"};
}

TEST(Gather, GivesEveryMemberAllBlocksWithoutTheOthers) {
  const std::vector<Rank> members = {Rank{5}, Rank{0}, Rank{3}, Rank{2}, Rank{6}};
  onRanks(7, [&](bootstrap::Bootstrap& bootstrap) {
    const auto self = std::ranges::find(members, bootstrap.rank());
    if (self == members.end()) return;
    std::vector<int32_t> all(members.size());
    all[static_cast<size_t>(self - members.begin())] = 100 + index(bootstrap.rank());
    const Status status = gather(groupOf(bootstrap, members), {},
                                 std::as_writable_bytes(std::span(all)), sizeof(int32_t));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(all, (std::vector<int32_t>{105, 100, 103, 102, 106}));
  });
}

TEST(Gather, CutsLargeBlocksIntoMessages) {
  constexpr size_t kBlock = 3 * bootstrap::Bootstrap::kMaxMessageBytes / 2;
  const std::vector<Rank> members = {Rank{0}, Rank{1}, Rank{2}};
  onRanks(3, [&](bootstrap::Bootstrap& bootstrap) {
    std::vector<std::byte> all(3 * kBlock);
    const auto self = static_cast<size_t>(index(bootstrap.rank()));
    std::fill_n(all.begin() + static_cast<ptrdiff_t>(self * kBlock), kBlock,
                static_cast<std::byte>(self + 1));
    const Status status = gather(groupOf(bootstrap, members), {}, all, kBlock);
    EXPECT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < all.size(); i += 1013)
      ASSERT_EQ(all[i], static_cast<std::byte>(i / kBlock + 1));
  });
}

TEST(Gather, TellsAllMembersOfOnesFailure) {
  std::vector<Rank> members;
  for (int32_t rank = 0; rank < 9; ++rank) members.push_back(Rank{rank});
  onRanks(9, [&](bootstrap::Bootstrap& bootstrap) {
    std::vector<int32_t> all(members.size());
    Status own;
    if (bootstrap.rank() == Rank{4}) own = invalidUsage("rank 4 has lost its hat");
    const Status status = gather(groupOf(bootstrap, members), std::move(own),
                                 std::as_writable_bytes(std::span(all)), sizeof(int32_t));
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_THAT(std::string(status.message()), HasSubstr("lost its hat"));
  });
}

}  // namespace
}  // namespace tutti::comm
