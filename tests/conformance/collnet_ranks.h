// For tests of collective networks: the process that reduces for the plug-in of tests/fakes, what
// the plug-in told of its groups, and what the ranks' processes have in common.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "network_ranks.h"
#include "ranks.h"

namespace tutti::conformance {

// The process that reduces; it ends with this object.
class ReducerProcess {
 public:
  explicit ReducerProcess(const std::vector<std::string>& arguments = {}) {
    std::array<int, 2> toIt{}, fromIt{};
    EXPECT_EQ(::pipe2(toIt.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(fromIt.data(), O_CLOEXEC), 0);
    std::vector<std::string> words{TUTTI_COLLNET_REDUCER, "127.0.0.1"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, toIt[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, fromIt[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&child_, words[0].c_str(), &actions, nullptr, pointers.data(), environ),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(toIt[0]);
    ::close(fromIt[1]);
    input_ = toIt[1];
    std::array<char, 16> port{};
    EXPECT_GT(::read(fromIt[0], port.data(), port.size() - 1), 0);
    ::close(fromIt[0]);
    address_ = "127.0.0.1:" + std::to_string(std::atoi(port.data()));
  }
  ~ReducerProcess() {
    ::close(input_);
    ::kill(child_, SIGKILL);  // one that stands still does not hear the other
    ::waitpid(child_, nullptr, 0);
  }
  ReducerProcess(const ReducerProcess&) = delete;
  ReducerProcess& operator=(const ReducerProcess&) = delete;

  Settings settings(int version, const Settings& more = {}) const {
    Settings all = more;  // the first of a name counts
    const Settings usual = {"NCCL_COLLNET_ENABLE=1",
                            "NCCL_NET_PLUGIN=" TUTTI_FAKE_COLLNETS "/libnccl-collnet-fake" +
                                std::to_string(version) + ".so",
                            "FAKE_COLLNET_AT=" + address_, "NCCL_DEBUG_SUBSYS=NET,INIT,TUNING"};
    all.insert(all.end(), usual.begin(), usual.end());
    return all;
  }

 private:
  pid_t child_ = 0;
  int input_ = -1;
  std::string address_;
};

// What its groups did, as they wrote it.
struct GroupUse {
  int members = 0;
  unsigned long reductions = 0, gathers = 0, scatters = 0;
};
inline std::map<int, GroupUse> usesIn(const std::string& report) {
  std::map<int, GroupUse> uses;  // by adapter
  std::ifstream file(report);
  int device = 0;
  GroupUse use;
  unsigned long long bytes = 0;
  while (file >> device >> use.members >> use.reductions >> bytes >> use.gathers >> use.scatters) {
    GroupUse& all = uses[device];
    all.members = use.members;
    all.reductions += use.reductions;
    all.gathers += use.gathers;
    all.scatters += use.scatters;
  }
  std::filesystem::remove(report);
  return uses;
}

// A started process's rank.
class NetworkRank {
 public:
  NetworkRank() {
    EXPECT_EQ(ncclCommInitRank(&comm_, self_.count, self_.id, self_.rank), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ~NetworkRank() { EXPECT_NCCL(ncclCommDestroy(comm_)); }
  NetworkRank(const NetworkRank&) = delete;
  NetworkRank& operator=(const NetworkRank&) = delete;

  const ProcessRank& self() const { return self_; }
  ncclComm_t comm() const { return comm_; }

 protected:
  // What the ranks' values make, by their order.
  template <typename T, typename ValueOf>
  T foldOf(ncclRedOp_t op, const ValueOf& valueOf) const {
    T result = valueOf(0);
    for (int rank = 1; rank < self_.count; ++rank) {
      const T value = valueOf(rank);
      if (op == ncclProd) result = static_cast<T>(result * value);
      if (op == ncclMax) result = std::max(result, value);
      if (op == ncclMin) result = std::min(result, value);
      if (op == ncclSum || op == ncclAvg) result = static_cast<T>(result + value);
    }
    return op == ncclAvg ? static_cast<T>(result / static_cast<T>(self_.count)) : result;
  }

  const ProcessRank self_ = thisProcess();
  ncclComm_t comm_ = nullptr;
};

// Both take what makes at most so many calls, until one fails: callUntilItFails(most).

// Within the time-out and a little, with a word of it.
template <typename Calls>
void expectFailure(const Calls& callUntilItFails) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(callUntilItFails(1000), ncclSuccess);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  EXPECT_LT(spent.count(), 20);
  const char* message = std::getenv("TEST_MESSAGE");
  EXPECT_THAT(ncclGetLastError(nullptr), testing::ContainsRegex(message));
}

// Rank 1 leaves the others amid its calls, without a word.
template <typename Calls>
void expectDeathOfRankOne(const NetworkRank& rank, const Calls& callUntilItFails) {
  if (rank.self().rank == 1) {
    EXPECT_EQ(callUntilItFails(3), ncclSuccess);
    ::_exit(0);
  }
  EXPECT_EQ(callUntilItFails(1000), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("rank 1"));
}

}  // namespace tutti::conformance
