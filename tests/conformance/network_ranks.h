// Ranks on hosts of their own (NCCL_HOSTID), for tests of the networks between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "processes.h"
#include "spread.h"

namespace tutti::conformance {

// What ranks on hosts of their own did and logged.
struct Outcome {
  std::vector<int> codes;
  std::string log;
  bool isGood() const {
    return std::all_of(codes.begin(), codes.end(), [](int code) { return code == 0; });
  }
  size_t count(const std::string& part) const {
    size_t number = 0;
    for (size_t at = 0; (at = log.find(part, at)) != std::string::npos; at += part.size()) ++number;
    return number;
  }
};

inline Outcome run(const std::string& body, const std::string& hosts, const Settings& settings,
                   const Settings& ofRank0 = {}) {
  // Of several of one name a process finds the first.
  const auto all = [&](int rank) {
    Settings variables = rank == 0 ? ofRank0 : Settings{};
    variables.insert(variables.end(), settings.begin(), settings.end());
    const Settings usual = {"NCCL_SOCKET_IFNAME=lo", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=NET",
                            "NCCL_DEBUG_FILE=" + temporary("log." + std::to_string(rank)),
                            std::string("NCCL_HOSTID=net-") + hosts[static_cast<size_t>(rank)]};
    variables.insert(variables.end(), usual.begin(), usual.end());
    return variables;
  };
  Outcome outcome;
  const auto rankCount = static_cast<int>(hosts.size());
  outcome.codes = runProcesses(body, rankCount, all);
  std::stringstream text;
  for (int rank = 0; rank < rankCount; ++rank) {
    const std::string file = temporary("log." + std::to_string(rank));
    text << std::ifstream(file).rdbuf();
    text.clear();  // a rank that logs nothing is no end of the others' logs
    std::filesystem::remove(file);
  }
  outcome.log = text.str();
  return outcome;
}

// What they run; the bodies are in hosts_test.cc and networks_test.cc.
inline constexpr const char* kAllCollectives = "HostRanks.DISABLED_AllCollectives";
inline constexpr const char* kAllReduce = "NetworkRanks.DISABLED_AllReduce";
inline constexpr const char* kAllGather = "NetworkRanks.DISABLED_AllGather";
inline constexpr const char* kExchange = "NetworkRanks.DISABLED_Exchange";
inline constexpr size_t kGatheredBytes = 1'600'000;
inline constexpr size_t kExchangedBytes = 3'200'000;
inline constexpr int kRounds = 8;
inline constexpr const char* kFailingInit = "NetworkRanks.DISABLED_InitThatFails";
inline constexpr const char* kFailingAllReduce = "NetworkRanks.DISABLED_AllReduceThatFails";

}  // namespace tutti::conformance
