/* Whatever library speaks nccl.h, with CPU ranks: buffers of the process's own, or with the
 * argument "shared" from ncclMemAlloc and in a window; with "hosts" each rank is taken for a host
 * of its own, so that they talk over loopback. */
#define _GNU_SOURCE
#define TUTTI_WITHOUT_CUDA_HEADERS
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/harness.h"

enum { kPage = 4096, kBuffers = 2, kTextBytes = 200 };

struct Memory {
  float* start;
  ncclWindow_t window;
};

static ncclComm_t comm;
static int ownRank;
static int partner;
static int isShared;
static int areHosts;
static int isWindowRefused;
static struct Memory memories[kBuffers];
static char description[kTextBytes];

static void require(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) fail(call, ncclGetLastError(NULL));
}

/* Before the library's first call, which reads the settings. */
static void beHost(int rank) {
  char name[kTextBytes];
  snprintf(name, sizeof name, "host%d", rank);
  if (setenv("NCCL_HOSTID", name, 1) != 0 || setenv("NCCL_SOCKET_IFNAME", "lo", 1) != 0) {
    fail("setenv", "no memory");
  }
  areHosts = 1;
}

void peerOpen(const struct Place* place, int argumentCount, char** arguments) {
  ncclUniqueId id;
  int i;
  _Static_assert(sizeof id <= kBlobBytes, "the id goes through the board");
  for (i = 0; i < argumentCount; ++i) {
    if (strcmp(arguments[i], "shared") == 0) isShared = 1;
    if (strcmp(arguments[i], "hosts") == 0) beHost(place->rank);
  }
  ownRank = place->rank;
  partner = partnerOf(place->rank, place->rankCount);
  if (ownRank == 0) {
    require(ncclGetUniqueId(&id), "ncclGetUniqueId");
    memcpy(place->blob, &id, sizeof id);
  }
  meet();
  memcpy(&id, place->blob, sizeof id);
  require(ncclCommInitRank(&comm, place->rankCount, id, ownRank), "ncclCommInitRank");
  peerFree(peerAllocate(kPage)); /* finds out whether windows are refused */
}

const char* peerDescription(void) {
  int version = 0;
  require(ncclGetVersion(&version), "ncclGetVersion");
  snprintf(description, sizeof description, "nccl interface %d, %s%s%s", version,
           isShared ? "buffers of ncclMemAlloc" : "ordinary buffers",
           isWindowRefused ? " (windows refused: not registered)" : "",
           areHosts ? ", each rank a host" : "");
  return description;
}

int peerHas(enum Collective collective, size_t bytes) {
  (void)bytes;
  return collective != kCollectiveCount;
}

static struct Memory* findMemory(const float* start) {
  int i;
  for (i = 0; i < kBuffers; ++i) {
    if (memories[i].start == start) return &memories[i];
  }
  fail("buffers", "more than were foreseen");
  return NULL;
}

float* peerAllocate(size_t bytes) {
  void* start = NULL;
  struct Memory* memory;
  if (!isShared) {
    if (posix_memalign(&start, kPage, bytes) != 0) fail("posix_memalign", "no memory");
    return start;
  }
  require(ncclMemAlloc(&start, bytes), "ncclMemAlloc");
  memory = findMemory(NULL);
  memory->start = start;
  memory->window = NULL;
  /* Windows only hasten; a library that refuses them is measured without. */
  if (!isWindowRefused && ncclCommWindowRegister(comm, start, bytes, &memory->window,
                                                 NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess) {
    isWindowRefused = 1;
    memory->window = NULL;
  }
  return start;
}

void peerFree(float* start) {
  struct Memory* memory;
  if (!isShared) {
    free(start);
    return;
  }
  memory = findMemory(start);
  if (memory->window != NULL) {
    require(ncclCommWindowDeregister(comm, memory->window), "ncclCommWindowDeregister");
  }
  require(ncclMemFree(start), "ncclMemFree");
  memory->start = NULL;
}

static ncclResult_t pingPong(const struct Call* call) {
  ncclResult_t result = ncclSuccess;
  if (partner < 0) return result;
  if (ownRank < partner) {
    result = ncclSend(call->send, call->count, ncclFloat, partner, comm, NULL);
    if (result != ncclSuccess) return result;
    return ncclRecv(call->recv, call->count, ncclFloat, partner, comm, NULL);
  }
  result = ncclRecv(call->recv, call->count, ncclFloat, partner, comm, NULL);
  if (result != ncclSuccess) return result;
  return ncclSend(call->recv, call->count, ncclFloat, partner, comm, NULL);
}

static ncclResult_t run(const struct Call* call) {
  const float* send = call->send;
  float* recv = call->recv;
  const size_t count = call->count;
  switch (call->collective) {
    case kAllReduce: return ncclAllReduce(send, recv, count, ncclFloat, ncclSum, comm, NULL);
    case kAllGather: return ncclAllGather(send, recv, count, ncclFloat, comm, NULL);
    case kReduceScatter:
      return ncclReduceScatter(send, recv, count, ncclFloat, ncclSum, comm, NULL);
    case kBroadcast: return ncclBroadcast(recv, recv, count, ncclFloat, 0, comm, NULL);
    case kAllToAll: return ncclAlltoAll(send, recv, count, ncclFloat, comm, NULL);
    case kPingPong: return pingPong(call);
    case kCollectiveCount: break;
  }
  return ncclInvalidArgument;
}

void peerCall(const struct Call* call) { require(run(call), "collective"); }

void peerClose(void) { require(ncclCommDestroy(comm), "ncclCommDestroy"); }
