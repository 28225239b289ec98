// Ranks for tests: each a process of its own, started from this test binary, so that the library in
// it is fresh and may die.
#pragma once

#include <gtest/gtest.h>
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spread.h"

namespace tutti::conformance {

// What a process was started as.
struct ProcessRank {
  int rank = 0;
  int count = 0;
  ncclUniqueId id{};
};

inline std::string toHex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

inline ncclUniqueId idFromHex(std::string_view text) {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < text.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(std::string(text.substr(2 * i, 2)), nullptr, 16));
  return id;
}

// In the body, a test named DISABLED_*: it runs in the started processes only.
inline ProcessRank thisProcess() {
  ProcessRank self;
  const char* rank = std::getenv("TEST_RANK");
  const char* count = std::getenv("TEST_RANK_COUNT");
  const char* id = std::getenv("TEST_ID");
  if (rank == nullptr || count == nullptr || id == nullptr) return self;
  self.rank = std::atoi(rank);
  self.count = std::atoi(count);
  if (std::strcmp(id, "fixed") == 0) {  // NCCL_COMM_ID says where to meet
    EXPECT_EQ(ncclGetUniqueId(&self.id), ncclSuccess) << ncclGetLastError(nullptr);
    return self;
  }
  self.id = idFromHex(id);
  return self;
}

// The how-manieth run of ranks since the running test began, from 0.
inline int countRuns() {
  static const testing::TestInfo* last = nullptr;
  static int runs = 0;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(last, test) != test) runs = 0;
  return runs++;
}

// The words that start this test binary again.
inline std::vector<std::string> ownProgram() {
#ifdef TUTTI_EMULATOR
  std::array<char, 4096> path{};
  EXPECT_GT(::readlink("/proc/self/exe", path.data(), path.size() - 1), 0);
  return {TUTTI_EMULATOR, path.data()};
#else
  return {"/proc/self/exe"};
#endif
}

// Starts `count` processes of the body `Suite.DISABLED_Name`; each one's exit code, or minus the
// signal that ended it. `settings(rank)`: more variables, "NAME=value". Where ranks are spread over
// two hosts (spread.h), and the test does not say itself where they are, they are.
inline std::vector<int> runProcesses(
    const std::string& body, int count,
    const std::function<std::vector<std::string>(int)>& settings = nullptr) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  const Settings spread = spreadSettings();
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    std::vector<std::string> variables;
    if (settings) variables = settings(rank);
    const bool isPlaced = std::ranges::any_of(
        variables, [](const auto& one) { return one.starts_with("NCCL_HOSTID="); });
    if (isSpread() && !isPlaced) {
      variables.insert(variables.end(), spread.begin(), spread.end());
      variables.emplace_back("NCCL_SOCKET_IFNAME=lo");
      variables.push_back(std::string("NCCL_HOSTID=spread-") +
                          spreadLayout(count)[static_cast<size_t>(rank)]);
    }
    const auto isGiven = [given = variables](std::string_view entry) {
      const std::string_view named = entry.substr(0, entry.find('=') + 1);
      return std::ranges::any_of(given,
                                 [named](const auto& one) { return one.starts_with(named); });
    };
    for (char** entry = environ; *entry != nullptr; ++entry) {
      // Sharding and test output of the parent are none of the child's.
      if (std::strncmp(*entry, "GTEST_", 6) != 0 && !isGiven(*entry))
        variables.emplace_back(*entry);
    }
    variables.push_back("TEST_RANK=" + std::to_string(rank));
    variables.push_back("TEST_RANK_COUNT=" + std::to_string(count));
    variables.push_back("TEST_ID=" + toHex(id));
    std::vector<std::string> words = ownProgram();
    words.insert(words.end(),
                 {"--gtest_filter=" + body, "--gtest_also_run_disabled_tests", "--gtest_brief=1"});
    std::vector<char*> arguments, environment;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& variable : variables) environment.push_back(variable.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(::posix_spawnp(&child, arguments.front(), nullptr, nullptr, arguments.data(),
                             environment.data()),
              0);
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    codes.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

}  // namespace tutti::conformance
