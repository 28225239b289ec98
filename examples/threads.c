/* One thread a rank: ranks of one process need no launcher, and share the unique id as a variable.
 *
 *   ./threads [rank count]
 *
 * Each rank all-reduces, and then passes a number once around the ring. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    if ((call) != ncclSuccess) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
      exit(1); /* the other threads' ranks would wait for this one */                        \
    }                                                                                        \
  } while (0)

enum { kElementCount = 100000, kMaxRankCount = 64 };

typedef struct {
  int rank;
  int rankCount;
  ncclUniqueId id;
  int wrongCount; /* the result */
} Rank;

/* Every element becomes 1 + 2 + ... + rankCount. */
static int countWrongSums(const Rank* self, ncclComm_t comm) {
  int i, wrongCount = 0;
  const int wanted = self->rankCount * (self->rankCount + 1) / 2;
  int* values = malloc(kElementCount * sizeof(*values));
  if (values == NULL) exit(1);
  for (i = 0; i < kElementCount; ++i) values[i] = self->rank + 1;
  CHECK(ncclAllReduce(values, values, kElementCount, ncclInt, ncclSum, comm, NULL));
  for (i = 0; i < kElementCount; ++i) wrongCount += values[i] != wanted;
  free(values);
  return wrongCount;
}

/* The send and the receive are one group: neither can then wait for the other. */
static int countWrongNeighbours(const Rank* self, ncclComm_t comm) {
  const int next = (self->rank + 1) % self->rankCount;
  const int previous = (self->rank + self->rankCount - 1) % self->rankCount;
  int received = -1;
  CHECK(ncclGroupStart());
  CHECK(ncclSend(&self->rank, 1, ncclInt, next, comm, NULL));
  CHECK(ncclRecv(&received, 1, ncclInt, previous, comm, NULL));
  CHECK(ncclGroupEnd());
  return received != previous;
}

static void* runRank(void* argument) {
  Rank* self = argument;
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, self->rankCount, self->id, self->rank));
  self->wrongCount = countWrongSums(self, comm) + countWrongNeighbours(self, comm);
  CHECK(ncclCommDestroy(comm));
  return NULL;
}

int main(int argc, char** argv) {
  const int rankCount = argc > 1 ? atoi(argv[1]) : 4;
  Rank ranks[kMaxRankCount];
  pthread_t threads[kMaxRankCount];
  ncclUniqueId id;
  int i, wrongCount = 0;

  if (rankCount < 1 || rankCount > kMaxRankCount) {
    fprintf(stderr, "usage: %s [rank count, 1 to %d]\n", argv[0], (int)kMaxRankCount);
    return 2;
  }
  CHECK(ncclGetUniqueId(&id));
  for (i = 0; i < rankCount; ++i) {
    ranks[i].rank = i;
    ranks[i].rankCount = rankCount;
    ranks[i].id = id;
    if (pthread_create(&threads[i], NULL, runRank, &ranks[i]) != 0) return 1;
  }
  for (i = 0; i < rankCount; ++i) {
    pthread_join(threads[i], NULL);
    wrongCount += ranks[i].wrongCount;
  }
  printf("%d thread ranks: all-reduce of %d ints and a ring of sends, %d wrong\n", rankCount,
         (int)kElementCount, wrongCount);
  return wrongCount == 0 ? 0 : 1;
}
