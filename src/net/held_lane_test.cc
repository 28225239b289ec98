// Lanes whose library returns at once: what is asked for is asked of the library, and nothing else.
#include "net/held_lane.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::net {
namespace {

// What a lane was called for.
struct Counts {
  int looks = 0;
  int known = 0;
};

// Its requests are through when they are asked for; it takes so many, and memory or none.
class CountingLane final : public Lane {
 public:
  CountingLane(Counts& counts, bool refuses, int room)
      : counts_(counts), refuses_(refuses), room_(room) {}
  Result<Memory> enroll(std::span<std::byte> memory) override {
    if (refuses_) return Status(Code::kSystemError, "too much memory");
    ++counts_.known;
    return Memory{memory.data()};
  }
  void release(Memory) override { --counts_.known; }
  Result<Request> post(std::span<std::byte> bytes, Memory) override {
    return --room_ < 0 ? Request{} : Request{bytes.data()};
  }
  Result<std::optional<size_t>> test(Request) override {
    ++counts_.looks;
    return std::optional<size_t>(7);
  }

 private:
  Counts& counts_;
  const bool refuses_;
  int room_;
};

class DirectLanes : public testing::Test {
 protected:
  std::unique_ptr<HeldLane> hold(bool refuses = false, int room = 8) {
    return holdLane(std::make_unique<CountingLane>(counts_, refuses, room), nullptr);
  }

  Counts counts_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

// A look may be a system call, and a receiver has several receives posted.
TEST_F(DirectLanes, AreLookedAtForTheRequestThatIsAskedForAlone) {
  const auto lane = hold();
  const Lane::Memory memory = lane->enroll(bytes_);
  const Request first = lane->post(bytes_, memory).value();
  ASSERT_TRUE(lane->post(bytes_, memory).value());
  EXPECT_EQ(counts_.looks, 0);
  EXPECT_EQ(lane->test(first).value(), 7u);
  EXPECT_EQ(counts_.looks, 1);
  lane->release(memory, {});
}

TEST_F(DirectLanes, SayAtOnceWhetherTheyKnowMemory) {
  const auto lane = hold();
  const Lane::Memory memory = lane->enroll(bytes_);
  EXPECT_EQ(lane->isKnown(memory).value(), Progress::kDone);
  EXPECT_EQ(counts_.known, 1);
  lane->release(memory, {});
  EXPECT_EQ(counts_.known, 0);
}

TEST_F(DirectLanes, PostNothingInMemoryThatWasRefused) {
  const auto lane = hold(true);
  const Lane::Memory memory = lane->enroll(bytes_);
  EXPECT_EQ(lane->isKnown(memory).status().message(), "too much memory");
  EXPECT_EQ(lane->post(bytes_, memory).status().message(), "too much memory");
  lane->release(memory, {});
  EXPECT_EQ(counts_.known, 0);
}

TEST_F(DirectLanes, CountLooksAndPostsInVain) {
  const auto lane = hold(false, 1);
  const Lane::Memory memory = lane->enroll(bytes_);
  const Request request = lane->post(bytes_, memory).value();
  EXPECT_EQ(lane->rounds(), 0u);
  ASSERT_FALSE(lane->post(bytes_, memory).value());
  ASSERT_TRUE(lane->test(request).value());
  EXPECT_EQ(lane->rounds(), 2u);
  lane->release(memory, {});
}

TEST_F(DirectLanes, KeepNothingOnceTheyAreClosed) {
  const auto lane = hold();
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  lane->release(lane->enroll(bytes_), kept);
  EXPECT_TRUE(lane->close(std::move(kept)));
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace tutti::net
