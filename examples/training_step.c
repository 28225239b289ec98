/* The communication of training steps with tensor, data and pipeline parallelism, in plain NCCL:
 * one thread drives all ranks, and groups of ranks come from ncclCommSplit.
 *
 *   ./training_step [ranks [ranks of a tensor group [steps]]]
 *
 * What it sends is never looked at, so it runs as it is on virtual ranks, a thousand of them too:
 *
 *   TUTTI_VIRTUAL_CLUSTER=examples/clusters/dgx_h100x128.yaml ./training_step 1024 8 2 */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    if ((call) != ncclSuccess) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

enum { kLayers = 4, kActivations = 1 << 16, kBuckets = 3, kBucket = 1 << 18 };

typedef struct {
  int count;            /* of ranks */
  ncclComm_t* comms[3]; /* of the world, the tensor groups, the data groups: by rank */
  float** buffers;
} Job;

enum { kWorld, kTensor, kData };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void* allocate(size_t count, size_t bytes) {
  void* memory = calloc(count, bytes);
  if (memory == NULL) exit(1);
  return memory;
}

static Job start(int count, int tensorCount) {
  Job job = {count, {NULL, NULL, NULL}, allocate((size_t)count, sizeof(float*))};
  const size_t elements = kBucket > kActivations ? kBucket : kActivations;
  int rank, kind;
  for (kind = 0; kind < 3; ++kind) job.comms[kind] = allocate((size_t)count, sizeof(ncclComm_t));
  CHECK(ncclCommInitAll(job.comms[kWorld], count, NULL));
  for (kind = kTensor; kind <= kData; ++kind) {
    CHECK(ncclGroupStart());
    for (rank = 0; rank < count; ++rank) {
      const int color = kind == kTensor ? rank / tensorCount : rank % tensorCount;
      CHECK(ncclCommSplit(job.comms[kWorld][rank], color, rank, &job.comms[kind][rank], NULL));
    }
    CHECK(ncclGroupEnd());
  }
  for (rank = 0; rank < count; ++rank)
    CHECK(ncclMemAlloc((void**)&job.buffers[rank], elements * sizeof(float)));
  return job;
}

/* One all-reduce of every rank in its group. */
static void allReduce(const Job* job, int kind, size_t elements) {
  int rank;
  CHECK(ncclGroupStart());
  for (rank = 0; rank < job->count; ++rank) {
    CHECK(ncclAllReduce(job->buffers[rank], job->buffers[rank], elements, ncclFloat, ncclSum,
                        job->comms[kind][rank], NULL));
  }
  CHECK(ncclGroupEnd());
}

/* Every rank hands its activations on to the next tensor group. */
static void passOn(const Job* job, int tensorCount) {
  int rank;
  CHECK(ncclGroupStart());
  for (rank = 0; rank < job->count; ++rank) {
    const int next = (rank + tensorCount) % job->count;
    const int previous = (rank + job->count - tensorCount) % job->count;
    CHECK(ncclSend(job->buffers[rank], kActivations / 2, ncclFloat, next, job->comms[kWorld][rank],
                   NULL));
    CHECK(ncclRecv(job->buffers[rank] + kActivations / 2, kActivations / 2, ncclFloat, previous,
                   job->comms[kWorld][rank], NULL));
  }
  CHECK(ncclGroupEnd());
}

static void step(const Job* job, int tensorCount) {
  int layer, bucket;
  for (layer = 0; layer < 2 * kLayers; ++layer) allReduce(job, kTensor, kActivations);
  passOn(job, tensorCount);
  for (bucket = 0; bucket < kBuckets; ++bucket) allReduce(job, kData, kBucket);
}

static void end(const Job* job) {
  int rank, kind;
  for (kind = kData; kind >= kWorld; --kind) {
    CHECK(ncclGroupStart());
    for (rank = 0; rank < job->count; ++rank) CHECK(ncclCommDestroy(job->comms[kind][rank]));
    CHECK(ncclGroupEnd());
    free(job->comms[kind]);
  }
  for (rank = 0; rank < job->count; ++rank) CHECK(ncclMemFree(job->buffers[rank]));
  free(job->buffers);
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 4;
  const int tensorCount = argc > 2 ? atoi(argv[2]) : 2;
  const int steps = argc > 3 ? atoi(argv[3]) : 2;
  const double begun = now();
  Job job;
  int i;

  if (count < 1 || tensorCount < 1 || count % tensorCount != 0 || steps < 0) {
    fprintf(stderr, "usage: %s [ranks [ranks of a tensor group, a divisor [steps]]]\n", argv[0]);
    return 2;
  }
  job = start(count, tensorCount);
  printf("%d ranks, tensor groups of %d, data groups of %d: made in %.2f s\n", count, tensorCount,
         count / tensorCount, now() - begun);
  for (i = 0; i < steps; ++i) step(&job, tensorCount);
  end(&job);
  printf("%d steps and the end after %.2f s\n", steps, now() - begun);
  return 0;
}
