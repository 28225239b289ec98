// Drives tasks to completion in the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "device/host/waiter.h"
#include "device/task.h"

namespace tutti::device::host {

// Looks at memory for what a short operation waits for, in a thread with a CPU of its own: a µs or
// two, several times what a message takes.
inline constexpr uint32_t kFirstLooks = 128;

// Links the tasks into one group, in their order, and returns the first. Null for none.
Task* linkGroup(std::span<Task* const> tasks);

// Polls the tasks linked from `first` in turn until each is done or failed, and completes each
// exactly once, as soon as it ends. A task that ends does not end the others. Allocates nothing.
void drive(Task* first, Waiting& waiting);

}  // namespace tutti::device::host
