// What a process holds of its system, for tests that nothing is left when its communicators are
// gone.
#pragma once

#include <malloc.h>
#include <net/if.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "../../src/base/process_counts_testing.h"

namespace tutti::faults {

inline std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// What a process holds of its system.
struct Holdings {
  long fds = static_cast<long>(openDescriptors());
  long threads = static_cast<long>(runningThreads());
  long segments = static_cast<long>(occurrences(contents("/proc/self/maps"), "/memfd:tutti"));
  long heapKiB = static_cast<long>(::mallinfo2().uordblks >> 10);
  long children = countChildren();

  static long countChildren() {
    size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      count += occurrences(contents(task.path() / "children"), " ");
    return static_cast<long>(count);
  }
};

// What a process keeps that has had communicators of several processes: a thread each that hands
// memory over, serves connections between hosts, and relays what others send there; with what wakes
// it, what it waits with, and a socket, of which the second has one on each interface.
constexpr long kThreads = 3, kDescriptorsOfAThread = 3;
#ifdef __SANITIZE_THREAD__
constexpr long kSanitizersThreads = 1;  // it comes with the first other thread
#else
constexpr long kSanitizersThreads = 0;
#endif
constexpr long kHeapKiB = 512;

// What its descriptors are of, to tell of those that should not be there.
inline std::string descriptors() {
  std::string text;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    text += std::filesystem::read_symlink(each.path(), gone).string() + " ";
  }
  return text;
}

inline long countInterfaces() {
  struct if_nameindex* names = ::if_nameindex();
  long count = 0;
  while (names != nullptr && names[count].if_index != 0) ++count;
  if (names != nullptr) ::if_freenameindex(names);
  return count;
}

// Beside those, of networks other than sockets: one that looks at them, one that calls their
// library.
inline long moreThreads() {
  const char* text = std::getenv("FAULT_MORE_THREADS");
  return text == nullptr ? 0 : std::atol(text);
}

// Nothing where this is no more than `before` and what is kept.
inline std::string tooMuch(const Holdings& now, const Holdings& before) {
  const long threads = now.threads - before.threads;
  std::string text;
  const auto compare = [&](const std::string& name, long more, long kept) {
    if (more > kept) text += std::to_string(more) + " more " + name + "; ";
  };
  compare("threads", threads, kThreads + kSanitizersThreads + moreThreads());
  long kept = kDescriptorsOfAThread * threads;
  if (threads > 1) kept += countInterfaces() - 1;
  if (std::getenv("NCCL_DEBUG_FILE") != nullptr) ++kept;
  compare("descriptors", now.fds - before.fds, kept);
  if (!text.empty()) text += descriptors();
  compare("mapped segments", now.segments - before.segments, 0);
  compare("KiB of heap", now.heapKiB - before.heapKiB, kHeapKiB);
  compare("children", now.children - before.children, 0);
  return text;
}

}  // namespace tutti::faults
