// Children of a process with a live communicator: one that runs another program finds none of the
// library's descriptors, and one that ends does the parent no harm.
#include <fcntl.h>
#include <nccl.h>
#include <tutti/host.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "../conformance/processes.h"
#include "../conformance/ranks.h"
#include "times.h"

namespace tutti::faults {
namespace {

using conformance::ProcessRank;

constexpr int kRanks = 3;

// What a program sees that this process starts, without the numbers.
std::vector<std::string> descriptorsOfAChild() {
  std::FILE* child = ::popen("for fd in /proc/$$/fd/*; do readlink $fd; done; true", "r");
  EXPECT_NE(child, nullptr);
  std::vector<std::string> names;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), child) != nullptr) {
    std::string& name = names.emplace_back(line.data());
    std::erase_if(name, [](char c) { return c == '\n' || (c >= '0' && c <= '9'); });
  }
  EXPECT_EQ(::pclose(child), 0);
  std::ranges::sort(names);
  return names;
}

std::set<int> openNow() {
  std::set<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    descriptors.insert(std::stoi(entry.path().filename()));
  return descriptors;
}

// Of those that are not in `before`; some may be gone while they are looked at.
size_t expectClosedOnExec(const std::set<int>& before) {
  size_t seen = 0;
  for (const int fd : openNow()) {
    if (before.contains(fd)) continue;
    std::array<char, 256> name{};
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || ::readlink(path.c_str(), name.data(), name.size() - 1) < 0) continue;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << fd << ": " << name.data();
    ++seen;
  }
  return seen;
}

// Long and short calls, memory that peers map, a child communicator: whatever there is a descriptor
// for.
class Much {
 public:
  explicit Much(const ProcessRank& self) : rank_(self.rank) {
    EXPECT_EQ(ncclCommInitRank(&comm_, self.count, self.id, rank_), ncclSuccess)
        << ncclGetLastError(nullptr);
    expectSum();
    constexpr size_t kBytes = size_t{1} << 20;
    EXPECT_NCCL(ncclMemAlloc(&shared_, kBytes));
    for (int i = 0; i < 4; ++i)
      EXPECT_NCCL(ncclBroadcast(shared_, shared_, kBytes, ncclInt8, 0, comm_, nullptr));
    EXPECT_NCCL(ncclCommSplit(comm_, 0, rank_, &child_, nullptr));
    expectSum();
  }
  ~Much() {
    for (ncclComm_t comm : {child_, comm_}) EXPECT_NCCL(ncclCommDestroy(comm));
    EXPECT_NCCL(ncclMemFree(shared_));
  }
  Much(const Much&) = delete;
  Much& operator=(const Much&) = delete;

  void expectSum() const {
    for (ncclComm_t comm : {comm_, child_}) {
      int64_t value = rank_;
      if (comm == nullptr) continue;
      EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
      EXPECT_EQ(value, kRanks * (kRanks - 1) / 2);
    }
  }

 private:
  const int rank_;
  ncclComm_t comm_ = nullptr;
  ncclComm_t child_ = nullptr;
  void* shared_ = nullptr;
};

TEST(ChildrenRanks, DISABLED_SeeNoDescriptors) {
  const ProcessRank self = conformance::thisProcess();
  const std::vector<std::string> atFirst = descriptorsOfAChild();
  const std::set<int> before = openNow();
  std::atomic<bool> isMade{false};
  // Those, too, that are open for a moment only.
  std::thread watcher([&] {
    while (!isMade) expectClosedOnExec(before);
  });
  const Much much(self);
  isMade = true;
  watcher.join();
  EXPECT_GT(expectClosedOnExec(before), 0u);
  EXPECT_EQ(descriptorsOfAChild(), atFirst);
  much.expectSum();
}

std::vector<std::string> asOfHost(int number) { return {"NCCL_HOSTID=" + std::to_string(number)}; }

TEST(Children, ThatRunAnotherProgramSeeNoDescriptors) {
  for (const int perHost : {kRanks, 2, 1}) {
    EXPECT_EQ(conformance::runProcesses("ChildrenRanks.DISABLED_SeeNoDescriptors", kRanks,
                                        [&](int rank) { return asOfHost(rank / perHost); }),
              std::vector<int>(kRanks, 0));
  }
}

// Exits as told; the parent goes on when it has.
void forkAndEnd(bool runsHandlers) {
  std::fflush(nullptr);  // or the child would print it again
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    if (runsHandlers) std::exit(0);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The others wait long enough to look at what that rank's page says of its life.
TEST(ChildrenRanks, DISABLED_End) {
  const ProcessRank self = conformance::thisProcess();
  {
    const Much much(self);
    for (const bool runsHandlers : {true, false}) {
      if (self.rank == 1) {
        forkAndEnd(runsHandlers);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      much.expectSum();
    }
  }
  const std::string own = std::to_string(::getpid());
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_EQ(entry.path().string().find(own), std::string::npos) << entry.path();
}

TEST(Children, ThatEndDoTheirParentNoHarm) {
  for (const int perHost : {kRanks, 1}) {
    EXPECT_EQ(conformance::runProcesses("ChildrenRanks.DISABLED_End", kRanks,
                                        [&](int rank) { return asOfHost(rank / perHost); }),
              std::vector<int>(kRanks, 0));
  }
}

}  // namespace
}  // namespace tutti::faults
