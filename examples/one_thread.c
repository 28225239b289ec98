/* One thread drives all ranks of a process: ncclCommInitAll, and groups around the operations.
 *
 *   ./one_thread [rank count]
 *
 * Without the group the first rank's call would wait for the second rank's, which this thread has
 * not made yet. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    if ((call) != ncclSuccess) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

enum { kElementCount = 5000, kMaxRankCount = 64 };

int main(int argc, char** argv) {
  const int rankCount = argc > 1 ? atoi(argv[1]) : 3;
  ncclComm_t comms[kMaxRankCount];
  double *inputs[kMaxRankCount], *outputs[kMaxRankCount];
  int rank, i, wrongCount = 0;

  if (rankCount < 1 || rankCount > kMaxRankCount) {
    fprintf(stderr, "usage: %s [rank count, 1 to %d]\n", argv[0], (int)kMaxRankCount);
    return 2;
  }
  CHECK(ncclCommInitAll(comms, rankCount, NULL));
  for (rank = 0; rank < rankCount; ++rank) {
    /* Memory from the library suits every kind of rank; any host memory would do here. */
    CHECK(ncclMemAlloc((void**)&inputs[rank], kElementCount * sizeof(double)));
    CHECK(ncclMemAlloc((void**)&outputs[rank], (size_t)rankCount * kElementCount * sizeof(double)));
    for (i = 0; i < kElementCount; ++i) inputs[rank][i] = rank * 1e6 + i;
  }

  CHECK(ncclGroupStart());
  for (rank = 0; rank < rankCount; ++rank) {
    CHECK(ncclAllGather(inputs[rank], outputs[rank], kElementCount, ncclDouble, comms[rank], NULL));
  }
  CHECK(ncclGroupEnd());

  for (rank = 0; rank < rankCount; ++rank) {
    for (i = 0; i < rankCount * kElementCount; ++i) {
      const int source = i / kElementCount;
      wrongCount += outputs[rank][i] != source * 1e6 + i % kElementCount;
    }
  }
  CHECK(ncclGroupStart()); /* ending is collective too */
  for (rank = 0; rank < rankCount; ++rank) CHECK(ncclCommDestroy(comms[rank]));
  CHECK(ncclGroupEnd());
  for (rank = 0; rank < rankCount; ++rank) {
    CHECK(ncclMemFree(inputs[rank]));
    CHECK(ncclMemFree(outputs[rank]));
  }
  printf("%d ranks in one thread: all-gather of %d doubles each, %d wrong\n", rankCount,
         (int)kElementCount, wrongCount);
  return wrongCount == 0 ? 0 : 1;
}
