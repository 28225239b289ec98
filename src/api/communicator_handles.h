// From communicators to the handles that C callers hold, and back.
#pragma once

#include <nccl.h>

#include <memory>

#include "base/status.h"
#include "comm/communicator.h"

namespace tutti::api {

struct Made {
  std::shared_ptr<comm::Communicator> communicator;
  ncclComm_t handle = nullptr;
};

// A communicator that is yet to be initialised. kInvalidUsage in a forked child, when TUTTI_DEVICE
// wants a device this build has not, or when there are too many.
Result<Made> makeCommunicator(comm::Communicator::Options options);

// Takes the handle out of use; calls that hold the communicator at this moment go on.
Result<std::shared_ptr<comm::Communicator>> removeHandle(ncclComm_t handle);

// The same in two steps, for who must end those calls first: the second waits for them.
Result<std::shared_ptr<comm::Communicator>> closeHandle(ncclComm_t handle);
void retireHandle(ncclComm_t handle);

// Initialises it, alone or at the end of the thread's group. Writes the handle on success and on
// kInProgress; otherwise the handle is gone.
Status initialise(const Made& made, ncclComm_t* comm);

}  // namespace tutti::api
