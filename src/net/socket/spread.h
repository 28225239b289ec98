// Over how many sockets and threads a link between hosts spreads. Pure but for linkSpeed().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::net::socket {

struct SpreadRules {
  int64_t threads = -1;           // NCCL_SOCKET_NTHREADS; -1: by the links' speed and the CPUs
  int64_t socketsPerThread = -1;  // NCCL_NSOCKS_PERTHREAD; -1: by the links' speed
  size_t speedMbit = 0;           // of all interfaces together; 0: unknown
  size_t interfaceCount = 1;      // each carries as many sockets
  size_t cpuCount = 1;            // that this process may use
  int32_t ranksOnCpus = 1;        // ranks that share these
  int32_t ranksInProcess = 1;     // of those, this process's
};
struct Spread {
  size_t sockets = 1;        // of a link
  size_t threads = 1;        // that send, and as many that receive; 1: the caller moves all
  bool hasOwnCpus = false;   // these threads may keep a CPU each for a moment
  size_t mbitPerSocket = 0;  // 0: unknown
  std::string reason;        // "4 sockets, 1 thread: 25000 Mbit/s"
};
Spread chooseSpread(const SpreadRules& rules);

// What the system says of an interface in Mbit/s; 0: nothing.
size_t linkSpeed(const std::string& interface);

}  // namespace tutti::net::socket
