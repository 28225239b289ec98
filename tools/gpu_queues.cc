#include "tools/gpu_queues.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/settings.h"
#include "device/registry.h"

namespace tutti::tools {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* kMost = "32";  // that the driver takes
constexpr int kMostGpus = 255;       // that an exit code tells

// 0: none. A child asks: the driver reads its variables when it starts, and would have started
// here.
int countGpusFromOutside() {
  const pid_t child = ::fork();
  if (child < 0) return 0;
  if (child == 0) {
    const auto count = device::countGpus();
    ::_exit(count.ok() ? std::min<int>(count.value(), kMostGpus) : 0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 0;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

void giveQueues(int ranks, int gpus) {
  if (ranks < 2 || environmentVariable(kVariable)) return;
  if (Settings::load().text("TUTTI_DEVICE") == "host") return;
  const int there = countGpusFromOutside();
  const int used = gpus == 0 ? there : std::min(gpus, there);
  if (used > 0 && ranks > used) presetEnvironmentVariable(kVariable, kMost);
}

}  // namespace tutti::tools
