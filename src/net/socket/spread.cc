#include "net/socket/spread.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/read_file.h"
#include "base/units.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {
namespace {

// Clouds hold one connection to 5 or 10 Gbit/s, however fast the link is (AWS: EC2 User Guide,
// network bandwidth; the settings that NCCL has for AWS and Google come to 4 to 16 connections at
// 100 Gbit/s).
constexpr size_t kMbitPerSocket = 10'000;
constexpr size_t kMostByItself = 16;

}  // namespace

Spread chooseSpread(const SpreadRules& rules) {
  // Not more by themselves: a message's parts are too short for what handing them over takes
  // (docs/results/2026-11-27-gpu4-check.md).
  const size_t threads = rules.threads > 0 ? static_cast<size_t>(rules.threads) : 1;
  const size_t bySpeed =
      std::clamp(divideUp(rules.speedMbit, kMbitPerSocket), size_t{1}, kMostByItself);
  const size_t perThread = rules.socketsPerThread > 0 ? static_cast<size_t>(rules.socketsPerThread)
                                                      : divideUp(bySpeed, threads);
  const size_t interfaces = rules.interfaceCount;
  const size_t sockets =
      std::min(roundUp(threads * perThread, interfaces), kMaxStreams / interfaces * interfaces);
  Spread spread{.sockets = sockets,
                .threads = std::min(threads, sockets),
                .hasOwnCpus = 4 * threads <= rules.cpuCount,
                .mbitPerSocket = divideUp(rules.speedMbit, sockets),
                .reason = {}};
  spread.reason =
      fmt::format("{} socket{} a link over {} interface{}, {} thread{}: {}{}", spread.sockets,
                  spread.sockets == 1 ? "" : "s", interfaces, interfaces == 1 ? "" : "s",
                  spread.threads, spread.threads == 1 ? "" : "s",
                  rules.speedMbit > 0 ? fmt::format("{} Mbit/s", rules.speedMbit) : "speed unknown",
                  rules.threads > 0 || rules.socketsPerThread > 0
                      ? ", NCCL_SOCKET_NTHREADS or NCCL_NSOCKS_PERTHREAD is set"
                      : "");
  // What a rank's thread is bound to, those that it starts are, too.
  if (spread.threads > 1 && !spread.hasOwnCpus) {
    spread.reason += fmt::format("; {} threads that send and as many that receive share {} CPU{}",
                                 spread.threads, rules.cpuCount, rules.cpuCount == 1 ? "" : "s");
  }
  return spread;
}

size_t linkSpeed(const std::string& interface) {
  const std::string text = readFile("/sys/class/net/" + interface + "/speed");
  int64_t speed = 0;
  std::from_chars(text.data(), text.data() + text.size(), speed);
  return speed > 0 ? static_cast<size_t>(speed) : 0;  // -1 where there is no such thing
}

}  // namespace tutti::net::socket
