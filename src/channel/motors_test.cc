#include "channel/motors.h"

#include <gtest/gtest.h>

namespace tutti::channel {
namespace {

class CountingMotor final : public transport::Motor {
 public:
  explicit CountingMotor(bool sends) : sends_(sends) {}
  bool run() override {
    ++runs;
    return hasSome;
  }
  bool sends() const override { return sends_; }
  void attend() override {}
  void settle() override {}
  void leave(const transport::Parting&) override {}
  transport::Parting parting() override { return {}; }
  void profile(observe::Profiler&) override {}
  void beginTransfer(const observe::EventTag&, const observe::TransferNote&) override {}
  void endTransfer(uint64_t) override {}

  bool hasSome = false;
  int runs = 0;

 private:
  const bool sends_;
};

class MotorsOfARank : public testing::Test {
 protected:
  void SetUp() override {
    for (CountingMotor* each : {&sender_, &busy_, &quiet_}) motors_.add(each);
  }
  void run(int times) {
    for (CountingMotor* each : {&sender_, &busy_, &quiet_}) each->runs = 0;
    for (int i = 0; i < times; ++i) motors_.run();
  }

  CountingMotor sender_{true};
  CountingMotor busy_{false};
  CountingMotor quiet_{false};
  Motors motors_;
};

TEST_F(MotorsOfARank, AreAllRunUntilOneHasBeenQuietForLong) {
  busy_.hasSome = true;
  run(200);
  EXPECT_EQ(sender_.runs, 200);
  EXPECT_EQ(busy_.runs, 200);
  EXPECT_EQ(quiet_.runs, 200);
}

TEST_F(MotorsOfARank, LookRarelyWhereNothingHasComeForLong) {
  busy_.hasSome = true;
  run(1000);
  run(800);
  EXPECT_EQ(sender_.runs, 800);
  EXPECT_EQ(busy_.runs, 800);
  EXPECT_EQ(quiet_.runs, 100);
}

TEST_F(MotorsOfARank, LookEverywhereWhenNothingComesAnywhere) {
  run(1000);
  run(100);
  EXPECT_EQ(busy_.runs, 100);
  EXPECT_EQ(quiet_.runs, 100);
}

TEST_F(MotorsOfARank, LookAgainWhereSomethingHasCome) {
  busy_.hasSome = true;
  run(1000);
  quiet_.hasSome = true;
  run(8);
  EXPECT_GE(quiet_.runs, 1);
  quiet_.hasSome = false;
  run(200);
  EXPECT_EQ(quiet_.runs, 200);
}

}  // namespace
}  // namespace tutti::channel
