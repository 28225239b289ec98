/* Virtual ranks: with TUTTI_VIRTUAL_CLUSTER=FILE (docs/SIMULATOR.md) the ranks that a program makes
 * are GPUs of the described cluster. Calls are checked, compared among the ranks of a process and
 * timed; they move nothing, wait for nobody, look at no buffer, and are over when they return. Any
 * stream is taken, and stands for itself only. ncclMemAlloc gives zeroed address space.
 *
 * Each function has a twin with the prefix pnccl, as in nccl.h. */
#ifndef TUTTI_VIRTUAL_H_
#define TUTTI_VIRTUAL_H_

#include <nccl.h>

#if defined(__GNUC__)
#define TUTTI_VIRTUAL_API __attribute__((visibility("default")))
#else
#define TUTTI_VIRTUAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What this rank's groups of calls would have taken so far, one after the other, in microseconds;
 * of a group, its sends beside its receives. Any thread. ncclInvalidUsage for a communicator that
 * is not virtual. */
TUTTI_VIRTUAL_API ncclResult_t ncclTuttiCommVirtualTime(ncclComm_t comm, double* microseconds);
TUTTI_VIRTUAL_API ncclResult_t pncclTuttiCommVirtualTime(ncclComm_t comm, double* microseconds);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_VIRTUAL_H_ */
