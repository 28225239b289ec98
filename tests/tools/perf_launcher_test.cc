#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "tools/command.h"
#include "tools/launch_lines.h"
#include "tools/launcher_env.h"
#include "tools/perf_board.h"

namespace tutti::tools {
namespace {

Lookup variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

LauncherPlace placeOf(const Lookup& lookup) {
  Result<std::optional<LauncherPlace>> place = detectLauncher(lookup);
  EXPECT_TRUE(place.ok() && place.value().has_value());
  return place.value().value_or(LauncherPlace{});
}

TEST(PerfLauncher, StartedByHandIsNoRank) {
  EXPECT_FALSE(detectLauncher(variables({})).value().has_value());
  // Leftovers of other programs.
  EXPECT_FALSE(detectLauncher(variables({{"RANK", "3"}})).value().has_value());
  EXPECT_FALSE(detectLauncher(variables({{"RANK", "3"}, {"WORLD_SIZE", "4"}})).value().has_value());
}

TEST(PerfLauncher, ReadsEachLauncher) {
  const LauncherPlace torchrun =
      placeOf(variables({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(torchrun.rank, 3);
  EXPECT_EQ(torchrun.size, 4);
  const LauncherPlace mpi = placeOf(variables({{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  EXPECT_EQ(mpi.launcher, "Open MPI");
  EXPECT_FALSE(mpi.isOneHost);
  const LauncherPlace mpich = placeOf(variables({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}));
  EXPECT_EQ(mpich.size, 2);
  EXPECT_TRUE(mpich.isOneHost);
  const LauncherPlace slurm = placeOf(variables({{"SLURM_PROCID", "5"},
                                                 {"SLURM_NTASKS", "8"},
                                                 {"SLURM_NNODES", "2"},
                                                 {"SLURM_STEP_ID", "0"}}));
  EXPECT_EQ(slurm.rank, 5);
  EXPECT_FALSE(slurm.isOneHost);
}

TEST(PerfLauncher, ASlurmBatchScriptIsNoRank) {
  EXPECT_FALSE(detectLauncher(variables({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}))
                   .value()
                   .has_value());
}

TEST(PerfLauncher, RanksThatAreGivenAMeetingPlaceNeedNoLauncher) {
  const LauncherPlace place =
      placeOf(variables({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"NCCL_COMM_ID", "10.0.0.1:4242"}}));
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
}

TEST(PerfLauncher, TheInnermostLauncherCounts) {
  const LauncherPlace place = placeOf(variables({{"RANK", "3"},
                                                 {"WORLD_SIZE", "4"},
                                                 {"MASTER_PORT", "1"},
                                                 {"SLURM_PROCID", "0"},
                                                 {"SLURM_NTASKS", "1"},
                                                 {"SLURM_STEP_ID", "0"}}));
  EXPECT_EQ(place.size, 4);
}

TEST(PerfLauncher, RefusesRanksThatMakeNoSense) {
  const std::map<std::string, std::string> port = {{"MASTER_PORT", "1"}};
  for (const auto& [rank, size] : {std::pair{"4", "4"}, std::pair{"-1", "4"}, std::pair{"x", "4"},
                                   std::pair{"0", ""}, std::pair{"0", "9999999999999"}}) {
    auto values = port;
    values.insert({{"RANK", rank}, {"WORLD_SIZE", size}});
    EXPECT_FALSE(detectLauncher(variables(values)).ok()) << rank << '/' << size;
  }
}

TEST(PerfLauncher, TheMeetingPlaceIsOneName) {
  LauncherPlace place;
  place.job = "-../../etc/passwd\n%n" + std::string(1000, 'x');
  const std::string path = rendezvousPath(variables({}), place);
  EXPECT_EQ(path.substr(0, 5), "/tmp/");
  EXPECT_EQ(path.find('/', 5), std::string::npos);
  EXPECT_LT(path.size(), 255U);
  EXPECT_EQ(path.find('\n'), std::string::npos);
}

TEST(PerfLines, EachWholeLineGetsThePrefix) {
  LinePrefixer lines("[1] ");
  EXPECT_EQ(lines.feed("one\ntw"), "[1] one\n");
  EXPECT_EQ(lines.feed("o\n\nthree"), "[1] two\n[1] \n");
  EXPECT_EQ(lines.finish(), "[1] three\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(PerfLines, AnEndlessLineIsCutAndNotKept) {
  LinePrefixer lines("");
  const std::string piece(LinePrefixer::kMaxLineBytes, 'x');
  EXPECT_EQ(lines.feed(piece), piece + "\n");
  EXPECT_EQ(lines.finish(), "");
}

class PerfBoard : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti-perf-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { ::rmdir(folder_.c_str()); }

  std::string path() const { return folder_ + "/board"; }

  std::string folder_;
};

// Each of the ranks sees every other's value, every time.
void exchange(Team& team, int rank, int rankCount) {
  for (int round = 0; round < 200; ++round) {
    Result<std::vector<double>> values = team.gather(rank, 1000.0 * round + rank);
    ASSERT_TRUE(values.ok());
    for (int peer = 0; peer < rankCount; ++peer) {
      ASSERT_EQ(values.value()[static_cast<size_t>(peer)], 1000.0 * round + peer);
    }
  }
}

TEST_F(PerfBoard, RanksExchangeValues) {
  constexpr int kRanks = 5;
  Result<std::unique_ptr<Board>> board = Board::makeAnonymous(kRanks);
  ASSERT_TRUE(board.ok());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { exchange(*board.value(), rank, kRanks); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PerfLauncher, AMeetingPlaceThatCannotBeMadeSaysWhatNamesAnother) {
  const auto board = Board::openNamed({.path = "/none/here", .isCreator = true}, 2);
  ASSERT_FALSE(board.ok());
  EXPECT_NE(board.status().message().find("/none/here, where ranks"), std::string_view::npos);
  EXPECT_NE(board.status().message().find("XDG_RUNTIME_DIR"), std::string_view::npos);
}

TEST_F(PerfBoard, AFailureEndsEverybodysWait) {
  Result<std::unique_ptr<Board>> board = Board::makeAnonymous(2);
  ASSERT_TRUE(board.ok());
  std::thread waiting([&] {
    const Status status = board.value()->barrier(0);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("rank 1 failed: no luck"), std::string_view::npos);
  });
  EXPECT_TRUE(board.value()->fail(1, "no luck", kExitTimeout));
  EXPECT_FALSE(board.value()->fail(0, "a consequence", kExitEnvironment));
  waiting.join();
  EXPECT_EQ(board.value()->exitCode(), kExitTimeout);
}

TEST_F(PerfBoard, ProcessesMeetByNameAndLeaveNothing) {
  std::thread other([&] {
    Result<std::unique_ptr<Board>> board =
        Board::openNamed({.path = path(), .isCreator = false, .processCount = 2}, 2);
    ASSERT_TRUE(board.ok()) << board.status().message();
    exchange(*board.value(), 1, 2);
  });
  Result<std::unique_ptr<Board>> board =
      Board::openNamed({.path = path(), .isCreator = true, .processCount = 2}, 2);
  ASSERT_TRUE(board.ok()) << board.status().message();
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
  exchange(*board.value(), 0, 2);
  other.join();
}

TEST_F(PerfBoard, RefusesAFileThatOthersMayRead) {
  ASSERT_EQ(std::system(("touch " + path() + "; chmod 644 " + path()).c_str()), 0);
  Result<std::unique_ptr<Board>> board =
      Board::openNamed({.path = path(), .processCount = 2, .timeoutSeconds = 0}, 2);
  ASSERT_FALSE(board.ok());
  EXPECT_NE(board.status().message().find("private"), std::string_view::npos);
  ::unlink(path().c_str());
}

TEST_F(PerfBoard, RefusesALink) {
  ASSERT_EQ(::symlink("/etc/passwd", path().c_str()), 0);
  EXPECT_FALSE(Board::openNamed({.path = path(), .processCount = 2, .timeoutSeconds = 0}, 2).ok());
  ::unlink(path().c_str());
}

TEST_F(PerfBoard, TellsWhoDidNotCome) {
  Result<std::unique_ptr<Board>> board = Board::openNamed(
      {.path = path(), .isCreator = true, .processCount = 3, .timeoutSeconds = 0}, 3);
  ASSERT_FALSE(board.ok());
  EXPECT_NE(board.status().message().find("only 1 of 3"), std::string_view::npos);
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tutti::tools
