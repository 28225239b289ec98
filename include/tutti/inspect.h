/* What a communicator is and does, as text for people: for logs, bug reports and debuggers. */
#ifndef TUTTI_INSPECT_H_
#define TUTTI_INSPECT_H_

#include <nccl.h>
#include <stddef.h>

#if defined(__GNUC__)
#define TUTTI_INSPECT_API __attribute__((visibility("default")))
#else
#define TUTTI_INSPECT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a description of the communicator to `text`, as much as fits `capacity` with a zero byte
 * at its end: its ranks and where they run, who is whose neighbour, the graphs of the host's GPUs,
 * which algorithm calls of which size take, what links over a network have carried, and the
 * settings in force. `length`, where it is not NULL, becomes the length of the whole description
 * without the zero byte, so that a call with capacity 0 (and any `text`) tells how much to bring.
 * Not a collective: any rank, any time after its initialisation, any thread, also after an error.
 * The form of the text may change between versions. ncclInvalidUsage while the communicator
 * initialises. */
TUTTI_INSPECT_API ncclResult_t ncclTuttiCommDump(ncclComm_t comm, char* text, size_t capacity,
                                                 size_t* length);
TUTTI_INSPECT_API ncclResult_t pncclTuttiCommDump(ncclComm_t comm, char* text, size_t capacity,
                                                  size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_INSPECT_H_ */
