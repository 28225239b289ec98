// Drives tasks to completion in the calling thread.
#pragma once

#include <span>

#include "device/host/waiter.h"
#include "device/task.h"

namespace tutti::device::host {

// Links the tasks into one group, in their order, and returns the first. Null for none.
Task* linkGroup(std::span<Task* const> tasks);

// Polls the tasks linked from `first` in turn until each is done or failed, and completes each
// exactly once, as soon as it ends. A task that ends does not end the others. Allocates nothing.
void drive(Task* first, Waiting& waiting);

}  // namespace tutti::device::host
