#!/usr/bin/env python3
"""CuPy's NCCL interface with whichever libnccl.so.2 is loaded: cupy.cuda.nccl, a communicator a GPU in one thread.

    LD_PRELOAD=build/cuda/lib/libnccl.so.2 tests/gpu/cupy_check.py
"""
import sys

import cupy
from cupy.cuda import nccl


def check(what, got, wanted):
    if not bool((got == wanted).all()):
        raise AssertionError(f"{what}: {got.ravel()[:4]} instead of {wanted}")


def main():
    gpus = cupy.cuda.runtime.getDeviceCount()
    comms = nccl.NcclCommunicator.initAll(list(range(gpus)))
    streams, sources, targets = [], [], []
    for gpu in range(gpus):
        with cupy.cuda.Device(gpu):
            streams.append(cupy.cuda.Stream(non_blocking=True))
            sources.append(cupy.full(100_003, gpu + 1, dtype=cupy.float32))
            targets.append(cupy.zeros(100_003 * gpus, dtype=cupy.float32))
            cupy.cuda.Device(gpu).synchronize()

    def each(call):
        nccl.groupStart()
        for gpu in range(gpus):
            with cupy.cuda.Device(gpu):
                call(gpu, comms[gpu], streams[gpu].ptr)
        nccl.groupEnd()
        for gpu in range(gpus):
            with cupy.cuda.Device(gpu):
                streams[gpu].synchronize()

    total = gpus * (gpus + 1) // 2
    each(lambda gpu, comm, stream: comm.allReduce(sources[gpu].data.ptr, targets[gpu].data.ptr, 100_003,
                                                  nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream))
    for target in targets:
        check("allReduce", target[:100_003], total)
    each(lambda gpu, comm, stream: comm.allGather(sources[gpu].data.ptr, targets[gpu].data.ptr, 100_003,
                                                  nccl.NCCL_FLOAT32, stream))
    for target in targets:
        for gpu in range(gpus):
            check("allGather", target[gpu * 100_003:(gpu + 1) * 100_003], gpu + 1)
    each(lambda gpu, comm, stream: comm.bcast(sources[gpu].data.ptr, 100_003, nccl.NCCL_FLOAT32, gpus - 1, stream))
    for source in sources:
        check("bcast", source, gpus)
    print(f"cupy.cuda.nccl {nccl.get_version()}: {gpus} GPUs, allReduce, allGather and bcast are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
