// One process of a soak: it plays its ranks of the seed's plan, each on a thread.
//
//   soak_rank SEED                       prints the plan as JSON
//   soak_rank SEED PROCESS               plays; the runner (soak.py) relays lines between
//   processes:
//     out: ready         it has started
//     in:  go            all have: what the machine takes to start them counts for nothing
//     out: id N HEX      an id that this process made for the round
//     in:  ids HEX...    all ids of the round
//     out: freeze US     this process stops itself now; let it go on after so many microseconds
//     out: round N {...} what the process holds after the round, all communicators destroyed
//     out: FAIL ...      what went wrong
#include <malloc.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "plan.h"
#include "rank.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" size_t __sanitizer_get_current_allocated_bytes();  // GCC 12 lacks the header
#endif

namespace tutti::soak {
namespace {

std::string toHex(const ncclUniqueId& id) {
  std::string text;
  char digits[3];
  for (const char byte : id.internal) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

ncclUniqueId fromHex(const std::string& text) {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 2 <= text.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

// The ids of a round are made by the processes in turn, as the meeting places of many ranks are.
std::vector<ncclUniqueId> exchangeIds(const Plan& plan, const Round& round, int process) {
  for (int i = 0; i < round.idCount; ++i) {
    if (i % plan.processCount != process) continue;
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess)
      fail(plan, std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
    std::printf("id %d %s\n", i, toHex(id).c_str());
  }
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  std::istringstream words(line);
  std::string word;
  words >> word;
  std::vector<ncclUniqueId> ids;
  while (words >> word) ids.push_back(fromHex(word));
  if (ids.size() != static_cast<size_t>(round.idCount)) fail(plan, "the runner gave no ids");
  return ids;
}

struct Holdings {
  size_t descriptors = 0;
  size_t threads = 0;
  size_t sharedMaps = 0;
  size_t memoryKib = 0;

  bool isWithin(const Holdings& other) const {
    return descriptors <= other.descriptors && threads <= other.threads &&
           sharedMaps <= other.sharedMaps;
  }
};

size_t entriesOf(const char* directory) {
  size_t count = 0;
  for (auto it = std::filesystem::directory_iterator(directory);
       it != std::filesystem::directory_iterator(); ++it)
    ++count;
  return count;
}

// What is resident; under a sanitizer what is allocated, since it keeps notes of its own about each
// thread and address that there ever was: 2 MiB a round of 6 ranks under ThreadSanitizer, where the
// same rounds grow by nothing without it (seed 5001).
size_t memoryKib() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return __sanitizer_get_current_allocated_bytes() >> 10;
#else
  std::string line;
  std::ifstream status("/proc/self/status");
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
#endif
}

Holdings holdings() {
  Holdings result{.descriptors = entriesOf("/proc/self/fd"),
                  .threads = entriesOf("/proc/self/task")};
  std::string line;
  std::ifstream maps("/proc/self/maps");
  while (std::getline(maps, line)) result.sharedMaps += line.find("/memfd:") != std::string::npos;
  result.memoryKib = memoryKib();
  return result;
}

// Threads end and sockets close a moment after the last communicator: what stays after that, leaks.
void report(const Plan& plan, size_t roundNumber, Holdings& baseline) {
  Holdings now = holdings();
  if (roundNumber == 0) {
    baseline = now;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      now = holdings();
      if (now.isWithin(baseline)) baseline = now;
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!now.isWithin(baseline) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = holdings();
  }
  // What is free is the allocator's to keep, more of it in one round than in the next.
  ::malloc_trim(0);
  now.memoryKib = memoryKib();
  char text[200];
  std::snprintf(text, sizeof text,
                "{\"descriptors\": %zu, \"threads\": %zu, \"maps\": %zu, \"memory_kib\": %zu}",
                now.descriptors, now.threads, now.sharedMaps, now.memoryKib);
  if (!now.isWithin(baseline)) {
    fail(plan, "round " + std::to_string(roundNumber) + " LEAK: " + text + ", after round 0 were " +
                   std::to_string(baseline.descriptors) + " descriptors, " +
                   std::to_string(baseline.threads) + " threads, " +
                   std::to_string(baseline.sharedMaps) + " maps");
  }
  std::printf("round %zu %s\n", roundNumber, text);
  std::fflush(stdout);
}

int play(const Plan& plan, int process) {
  Holdings baseline;
  std::printf("ready\n");
  std::fflush(stdout);
  std::string go;
  std::getline(std::cin, go);
  for (size_t number = 0; number < plan.rounds.size(); ++number) {
    const std::vector<ncclUniqueId> ids = exchangeIds(plan, plan.rounds[number], process);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < plan.rankCount(); ++rank) {
      if (plan.processOfRank[static_cast<size_t>(rank)] != process) continue;
      threads.emplace_back([&, rank] { RankRunner(plan, number, rank).run(ids); });
    }
    for (std::thread& thread : threads) thread.join();
    report(plan, number, baseline);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::soak

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const tutti::soak::Plan plan = tutti::soak::makePlan(std::strtoull(argv[1], nullptr, 10));
  if (argc == 2) {
    std::cout << tutti::soak::toJson(plan) << '\n';
    return 0;
  }
  return tutti::soak::play(plan, std::atoi(argv[2]));
}
