#include "base/home_cpu.h"

#include <sched.h>

#include <algorithm>

#include "base/affinity.h"

namespace tutti {

void HomeCpu::look() {
  yields_.store(0, std::memory_order_relaxed);
  const uint32_t between = between_.load(std::memory_order_relaxed);
  if (::sched_getcpu() == cpu_) {
    between_.store(std::max(between / 2, kLeastBetween), std::memory_order_relaxed);
    return;
  }
  between_.store(std::min(between * 2, kMostBetween), std::memory_order_relaxed);
  moveThreadTo(cpu_);
}

}  // namespace tutti
