/* Preloaded by perf_test.py: an all-reduce that does wrong, so that the test sees `tutti perf`
 * notice. SABOTAGE says what: "element" (rank 1's middle element), "beyond" (a byte after the
 * buffer), "input" (the send buffer), "die", "fail" or "hang" (rank 1, when it comes to 1 KiB of
 * float). As the library of --lib it says which windows it is asked for. */
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int isAsked(const char* what) {
  const char* asked = getenv("SABOTAGE");
  return asked != NULL && strcmp(asked, what) == 0;
}

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* send, void* recv,
                                                                  size_t count, ncclDataType_t type,
                                                                  ncclRedOp_t op, ncclComm_t comm,
                                                                  cudaStream_t stream) {
  int rank = 0;
  ncclCommUserRank(comm, &rank);
  if (rank == 1 && count == 256) {
    if (isAsked("die")) raise(SIGKILL);
    if (isAsked("fail")) return ncclInvalidUsage;
    while (isAsked("hang")) pause();
  }
  ncclResult_t result = pncclAllReduce(send, recv, count, type, op, comm, stream);
  if (rank != 1 || count != 256) return result;
  char* bytes = recv;
  if (isAsked("element")) bytes[4 * (count / 2) + 3] ^= 0x10;
  if (isAsked("beyond")) bytes[4 * count] ^= 1;
  if (isAsked("input")) ((char*)(size_t)send)[3] ^= 0x10;
  return result;
}

__attribute__((visibility("default"))) ncclResult_t ncclCommWindowRegister(
    ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags) {
  fprintf(stderr, "sabotage: a window\n");
  return pncclCommWindowRegister(comm, buffer, size, window, flags);
}
