/* One way of measuring for every library: a program per library defines the peer* functions below,
 * harness.c holds the rest. The ranks of one program are processes of one host that meet in a file
 * of shared memory, so neither commands nor barriers go through the library that is measured.
 *
 * run.py tells rank 0 what to measure and reads what came out, through two FIFOs; see harness.c. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum Collective {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast, /* from rank 0, in place */
  kAllToAll,
  kPingPong, /* each rank of the first half to its partner in the second, and back */
  kCollectiveCount
};

enum { kMaxRanks = 64, kBlobBytes = 256 };

struct Place {
  int rank;
  int rankCount;
  int hasOwnCores;       /* a core for each rank, to which it is pinned */
  const char* directory; /* the job's own: command, result, board */
  unsigned char* blob;   /* kBlobBytes that all ranks see: for an id, say */
};

/* Buffers hold floats. `send` and `recv` are what the rank gives and gets; `count` is that of one
 * rank's piece for all-gather, reduce-scatter and all-to-all, and of the vector for the others.
 * Broadcast uses `recv` alone. Ping-pong: the first half sends `send`, partners return it from
 * their `recv`. */
struct Call {
  enum Collective collective;
  const float* send;
  float* recv;
  size_t count;
};

/* Joins the library's job. `arguments` are those after the directory. Ends the process on failure,
 * as all of these do. */
void peerOpen(const struct Place* place, int argumentCount, char** arguments);
/* What was measured, for the record: name, version, anything unusual. One line. */
const char* peerDescription(void);
/* Whether the library has the collective at all, at vectors of so many bytes. */
int peerHas(enum Collective collective, size_t bytes);
/* Memory of the kind that is measured, the same on all ranks: collective. Page-aligned. */
float* peerAllocate(size_t bytes);
void peerFree(float* memory);
/* Runs one operation to its end. */
void peerCall(const struct Call* call);
void peerClose(void);

/* Whether a call's `count` is that of a rank's piece. */
static inline int isInPieces(enum Collective collective) {
  return collective == kAllGather || collective == kReduceScatter || collective == kAllToAll;
}
/* The other rank of a ping-pong, half of the ranks away; -1: none, of an odd number the last. */
int partnerOf(int rank, int rankCount);
/* CPUs that this process may run on, and from now on only so many of them, from that number on. */
int cpusUsable(void);
void stayOn(int first, int count);
/* For peerOpen: returns once all ranks are here. */
void meet(void);
/* Says why on standard error and ends the process; the launcher ends the others. */
void fail(const char* what, const char* why);

#ifdef __cplusplus
}
#endif
