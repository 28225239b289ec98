// What this process holds, for tests that nothing is left behind.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <thread>

namespace tutti {

// 0 where there is no such folder.
inline size_t countEntries(const char* folder) {
  DIR* directory = ::opendir(folder);
  if (directory == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.' ? 1u : 0u;
  ::closedir(directory);
  return count;
}

// With the one that is open while it counts.
inline size_t openDescriptors() { return countEntries("/proc/self/fd"); }
inline size_t runningThreads() { return countEntries("/proc/self/task"); }

// How many still run when no more than `wanted` do, or after many looks: one that has been joined
// may be listed for a moment yet.
inline size_t runningThreadsDownTo(size_t wanted) {
  size_t running = runningThreads();
  for (int looks = 0; running > wanted && looks < 100'000; ++looks) {
    std::this_thread::yield();
    running = runningThreads();
  }
  return running;
}

inline size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tutti
