// Hardware queues for ranks that share a GPU: a stream that waits for another rank holds up all
// that share its queue, and the driver gives a process eight.
#pragma once

namespace tutti::tools {

// Sets CUDA_DEVICE_MAX_CONNECTIONS for what this process starts, and for itself as long as it has
// not started the driver, where `ranks` of this host are more than the GPUs that they use (at most
// `gpus`; 0: all there are), unless it is set. One thread.
void giveQueues(int ranks, int gpus = 0);

}  // namespace tutti::tools
