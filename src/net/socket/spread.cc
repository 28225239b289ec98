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

// For each of so many, one thread sends and one receives; the rank's own needs a CPU, and the
// program another. Two CPU ranks of two played hosts over loopback, 32 CPUs each, ms of an
// all-gather of 4, 16 and 64 MB by one thread and by two: 0.95, 4.3, 17.9 and 0.55, 2.5, 10.7, in
// place 0.83, 3.7, 17.2 and 0.35, 1.7, 7.8 (64 CPUs of an Intel Xeon VM, 2026-11-27); more were not
// timed.
bool haveOwnCpus(size_t threads, const SpreadRules& rules) {
  constexpr size_t kCpusPerThread = 4;
  const auto ranks = static_cast<size_t>(std::max(rules.ranksOnCpus, 1));
  return kCpusPerThread * threads * ranks <= rules.cpuCount;
}

// One thread moves 2 to 4 GB/s, so a link that may be faster gets two; but several ranks of a
// process, which would share these, are as many threads themselves.
size_t threadsByThemselves(const SpreadRules& rules) {
  constexpr size_t kMost = 2;
  constexpr size_t kMbitPerThread = 20'000;
  const bool mayBeFast = rules.speedMbit == 0 || rules.speedMbit > kMbitPerThread;
  const bool isAlone = rules.ranksInProcess <= 1;
  return mayBeFast && isAlone && haveOwnCpus(kMost, rules) ? kMost : 1;
}

}  // namespace

Spread chooseSpread(const SpreadRules& rules) {
  const size_t threads =
      rules.threads > 0 ? static_cast<size_t>(rules.threads) : threadsByThemselves(rules);
  const size_t bySpeed =
      std::clamp(divideUp(rules.speedMbit, kMbitPerSocket), size_t{1}, kMostByItself);
  const size_t perThread = rules.socketsPerThread > 0 ? static_cast<size_t>(rules.socketsPerThread)
                                                      : divideUp(bySpeed, threads);
  const size_t interfaces = rules.interfaceCount;
  const size_t sockets =
      std::min(roundUp(threads * perThread, interfaces), kMaxStreams / interfaces * interfaces);
  Spread spread{.sockets = sockets,
                .threads = std::min(threads, sockets),
                .hasOwnCpus = haveOwnCpus(threads, rules),
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
