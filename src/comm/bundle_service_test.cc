#include "comm/bundle_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "observe/board.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kPatience{60};

class BundleServiceTest : public testing::Test {
 protected:
  BundleServiceTest() : folder_(testing::TempDir() + "bundlesXXXXXX") {
    ::mkdtemp(folder_.data());
    ::sigaction(SIGUSR1, nullptr, &before_);
    ::signal(SIGUSR1, SIG_DFL);
  }
  ~BundleServiceTest() override {
    ::sigaction(SIGUSR1, &before_, nullptr);
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<BundleService> start(int signal = SIGUSR1) {
    return std::move(BundleService::start(
                         {.folder = folder_, .settings = "x=1 (test)\n", .signal = signal}))
        .value();
  }
  size_t bundles() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      count += entry.path().extension() == ".tar" ? 1 : 100;
    return count;
  }
  static bool isDefault() {
    struct sigaction now {};
    ::sigaction(SIGUSR1, nullptr, &now);
    return now.sa_handler == SIG_DFL;
  }

  std::string folder_;
  struct sigaction before_ {};
};

TEST_F(BundleServiceTest, WritesAllThatWasAskedForBeforeItEnds) {
  auto service = start();
  observe::Board board = observe::Board::create(2, "job", 500).value();
  board.giveVerdict({.code = Code::kRemoteError, .guilty = 1, .text = "rank 1 died"});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      service->verdictGiven(board);
      ::raise(SIGUSR1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  service->finish(kPatience);
  EXPECT_GE(bundles(), 5u);  // four verdicts, and the signals in at least one
  EXPECT_LE(bundles(), 8u);
}

TEST_F(BundleServiceTest, TakesTheSignalAndGivesItBack) {
  auto service = start();
  EXPECT_FALSE(isDefault());
  service.reset();
  EXPECT_TRUE(isDefault());
  EXPECT_EQ(bundles(), 0u);
}

TEST_F(BundleServiceTest, TakesTheSignalThatItIsGiven) {
  auto service = start(SIGUSR2);
  EXPECT_TRUE(isDefault());
  ::raise(SIGUSR2);
  service->finish(kPatience);
  EXPECT_EQ(bundles(), 1u);
}

TEST_F(BundleServiceTest, GoesOnWithoutASignalThatNobodyCanHandle) {
  auto service = start(SIGKILL);
  EXPECT_TRUE(isDefault());
}

TEST_F(BundleServiceTest, LeavesASignalThatTheProgramHasTakenSince) {
  auto service = start();
  ::signal(SIGUSR1, SIG_IGN);
  service.reset();
  EXPECT_FALSE(isDefault());
}

}  // namespace
}  // namespace tutti::comm
