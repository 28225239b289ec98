/* The MPI whose compiler wrapper built this. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/harness.h"

enum { kPage = 4096, kTag = 7 };

static char description[MPI_MAX_LIBRARY_VERSION_STRING];
static int ownRank;
static int partner;

static void require(int result, const char* call) {
  if (result != MPI_SUCCESS) fail(call, "MPI error");
}

void peerOpen(const struct Place* place, int argumentCount, char** arguments) {
  int rank, size, length;
  char* c;
  (void)argumentCount;
  (void)arguments;
  require(MPI_Init(NULL, NULL), "MPI_Init");
  require(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  require(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (rank != place->rank || size != place->rankCount) fail("MPI_Init", "not the ranks expected");
  require(MPI_Get_library_version(description, &length), "MPI_Get_library_version");
  description[strcspn(description, "\n")] = '\0';
  for (c = description; *c != '\0'; ++c) {
    if (*c == '\t') *c = ' ';
  }
  ownRank = rank;
  partner = partnerOf(rank, size);
}

const char* peerDescription(void) { return description; }

int peerHas(enum Collective collective, size_t bytes) {
  (void)bytes;
  return collective != kCollectiveCount;
}

float* peerAllocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, kPage, bytes) != 0) fail("posix_memalign", "no memory");
  return memory;
}

void peerFree(float* memory) { free(memory); }

static int pingPong(const struct Call* call) {
  const int count = (int)call->count;
  int result;
  if (partner < 0) return MPI_SUCCESS;
  if (ownRank < partner) {
    result = MPI_Send(call->send, count, MPI_FLOAT, partner, kTag, MPI_COMM_WORLD);
    if (result != MPI_SUCCESS) return result;
    return MPI_Recv(call->recv, count, MPI_FLOAT, partner, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  result = MPI_Recv(call->recv, count, MPI_FLOAT, partner, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (result != MPI_SUCCESS) return result;
  return MPI_Send(call->recv, count, MPI_FLOAT, partner, kTag, MPI_COMM_WORLD);
}

static int run(const struct Call* call) {
  const int count = (int)call->count;
  switch (call->collective) {
    case kAllReduce:
      return MPI_Allreduce(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case kAllGather:
      return MPI_Allgather(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT,
                           MPI_COMM_WORLD);
    case kReduceScatter:
      return MPI_Reduce_scatter_block(call->send, call->recv, count, MPI_FLOAT, MPI_SUM,
                                      MPI_COMM_WORLD);
    case kBroadcast: return MPI_Bcast(call->recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case kAllToAll:
      return MPI_Alltoall(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT,
                          MPI_COMM_WORLD);
    case kPingPong: return pingPong(call);
    case kCollectiveCount: break;
  }
  return MPI_ERR_OTHER;
}

void peerCall(const struct Call* call) { require(run(call), "collective"); }

void peerClose(void) { require(MPI_Finalize(), "MPI_Finalize"); }
