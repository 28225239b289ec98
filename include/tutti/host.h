/* CPU ranks: how they are asked for, their streams and events. A GPU rank passes CUDA streams to
 * the collectives; a CPU rank passes NULL (the call, or the end of its group, returns when the work
 * is done) or a stream made here (the call returns at once, and the work runs in order on the
 * stream's own thread).
 *
 * Streams are passed as cudaStream_t, so the collectives' signatures stay those of nccl.h; but they
 * are no CUDA streams: only the functions below and the collectives of CPU ranks take them. Handles
 * are checked: a destroyed or foreign one is ncclInvalidArgument, not a crash. All functions may be
 * called from any thread. Where a stream is taken, NULL means the calling thread.
 *
 * Each function has a twin with the prefix pnccl, as in nccl.h, so that a tool can interpose the
 * plain name. */
#ifndef TUTTI_HOST_H_
#define TUTTI_HOST_H_

#include <nccl.h>

#if defined(__GNUC__)
#define TUTTI_HOST_API __attribute__((visibility("default")))
#else
#define TUTTI_HOST_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* As ncclCommInitRank, for a rank that is a CPU rank wherever it runs: also where the process has
 * GPUs, and GPU ranks of other communicators. All ranks of a communicator are of one kind. */
TUTTI_HOST_API ncclResult_t ncclTuttiCommInitRankHost(ncclComm_t* comm, int nranks,
                                                      ncclUniqueId commId, int rank);
TUTTI_HOST_API ncclResult_t pncclTuttiCommInitRankHost(ncclComm_t* comm, int nranks,
                                                       ncclUniqueId commId, int rank);

/* A point in a stream's work, which the host and other streams can wait for. */
typedef struct ncclTuttiEvent* ncclTuttiEvent_t;

/* Makes a stream. Its thread starts with its first work. */
TUTTI_HOST_API ncclResult_t ncclTuttiStreamCreate(cudaStream_t* stream);
TUTTI_HOST_API ncclResult_t pncclTuttiStreamCreate(cudaStream_t* stream);

/* Waits for the stream's work, then ends it. No thread may still be using the stream.
 * ncclInvalidUsage from the stream's own host function. */
TUTTI_HOST_API ncclResult_t ncclTuttiStreamDestroy(cudaStream_t stream);
TUTTI_HOST_API ncclResult_t pncclTuttiStreamDestroy(cudaStream_t stream);

/* Returns when all work given to the stream before this call is done. Whether a collective
 * succeeded is told by ncclCommGetAsyncError. ncclInvalidUsage from the stream's own host function.
 */
TUTTI_HOST_API ncclResult_t ncclTuttiStreamSynchronize(cudaStream_t stream);
TUTTI_HOST_API ncclResult_t pncclTuttiStreamSynchronize(cudaStream_t stream);

/* ncclSuccess when all work given to the stream is done, ncclInProgress when not. Never waits. */
TUTTI_HOST_API ncclResult_t ncclTuttiStreamQuery(cudaStream_t stream);
TUTTI_HOST_API ncclResult_t pncclTuttiStreamQuery(cudaStream_t stream);

/* Calls function(argument) when the work given to the stream before is done; later work waits for
 * its return. On NULL it is called before this call returns. */
TUTTI_HOST_API ncclResult_t ncclTuttiLaunchHostFunc(cudaStream_t stream, void (*function)(void*),
                                                    void* argument);
TUTTI_HOST_API ncclResult_t pncclTuttiLaunchHostFunc(cudaStream_t stream, void (*function)(void*),
                                                     void* argument);

/* Makes an event; it counts as reached until it is recorded. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventCreate(ncclTuttiEvent_t* event);
TUTTI_HOST_API ncclResult_t pncclTuttiEventCreate(ncclTuttiEvent_t* event);

/* Does not wait: records and waits that are under way finish undisturbed. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventDestroy(ncclTuttiEvent_t event);
TUTTI_HOST_API ncclResult_t pncclTuttiEventDestroy(ncclTuttiEvent_t event);

/* The event is reached when all work given to the stream before is done. Recording again replaces
 * the record; waits made before keep waiting for the earlier one. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventRecord(ncclTuttiEvent_t event, cudaStream_t stream);
TUTTI_HOST_API ncclResult_t pncclTuttiEventRecord(ncclTuttiEvent_t event, cudaStream_t stream);

/* Work given to the stream after this call starts once the event's latest record is reached. With
 * NULL the calling thread waits. */
TUTTI_HOST_API ncclResult_t ncclTuttiStreamWaitEvent(cudaStream_t stream, ncclTuttiEvent_t event);
TUTTI_HOST_API ncclResult_t pncclTuttiStreamWaitEvent(cudaStream_t stream, ncclTuttiEvent_t event);

/* Returns when the event's latest record is reached. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventSynchronize(ncclTuttiEvent_t event);
TUTTI_HOST_API ncclResult_t pncclTuttiEventSynchronize(ncclTuttiEvent_t event);

/* ncclSuccess when the event's latest record is reached, ncclInProgress when not. Never waits. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventQuery(ncclTuttiEvent_t event);
TUTTI_HOST_API ncclResult_t pncclTuttiEventQuery(ncclTuttiEvent_t event);

/* Milliseconds from the moment `start` was reached to that of `end`. ncclInvalidArgument when one
 * was never recorded, ncclInProgress when one is not reached yet. */
TUTTI_HOST_API ncclResult_t ncclTuttiEventElapsedTime(float* milliseconds, ncclTuttiEvent_t start,
                                                      ncclTuttiEvent_t end);
TUTTI_HOST_API ncclResult_t pncclTuttiEventElapsedTime(float* milliseconds, ncclTuttiEvent_t start,
                                                       ncclTuttiEvent_t end);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_HOST_H_ */
