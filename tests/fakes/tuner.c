/* A tuner plug-in for tests, in plain C, as a user would write one: its own declarations of the
 * interface, of the version that FAKE_TUNER_VERSION says. FAKE_TUNER in the environment says what
 * it does: an algorithm's name and maybe a collective's number, a protocol and channels, "ring",
 * "tree 4" or "ring 4 ll 3", is wanted;
 * "nothing" leaves costs as they are; "none-left" forbids all; "fail-init" and "fail-call" fail;
 * "hang-open" (its constructor) and "hang-init" never return; "garbage" answers with algorithms
 * that nobody has, costs that are no numbers and less than no channels; "no-name" and "no-function"
 * lack these. */
#include <math.h>
#include <nccl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Logger)(int level, unsigned long flags, const char* file, int line,
                       const char* format, ...);

enum { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat, kAlgorithms };
enum { kLl, kLl128, kSimple, kProtocols };

struct Context {
  int alive;
};

static const char* order(void) {
  const char* text = getenv("FAKE_TUNER");
  return text == NULL ? "nothing" : text;
}

static int isOrdered(const char* what) { return strcmp(order(), what) == 0; }

static void hangIfOrdered(const char* what) {
  while (isOrdered(what)) sleep(1);
}

static ncclResult_t start(size_t ranks, size_t nodes, Logger logger, void** context) {
  hangIfOrdered("hang-init");
  if (strcmp(order(), "fail-init") == 0) return ncclSystemError;
  struct Context* made = malloc(sizeof *made);
  if (made == NULL) return ncclSystemError;
  made->alive = 1;
  *context = made;
  logger(3, 0x40, __FILE__, __LINE__, "fake tuner for %zu ranks on %zu nodes", ranks, nodes);
  return ncclSuccess;
}

static ncclResult_t stop(void* context) {
  free(context);
  return ncclSuccess;
}

/* The row that is wanted for the collective; -1: none. Changes the column and the channels. */
static int wantedRow(int function, int* column, int* channels) {
  char name[16] = "", protocol[16] = "";
  int only = -1, most = 0;
  *column = kSimple;
  if (sscanf(order(), "%15s %d %15s %d", name, &only, protocol, &most) < 1) return -1;
  if (only >= 0 && only != function) return -1;
  if (strcmp(protocol, "ll") == 0) *column = kLl;
  if (strcmp(protocol, "ll128") == 0) *column = kLl128;
  if (most > 0) *channels = most;
  if (strcmp(name, "tree") == 0) return kTree;
  if (strcmp(name, "ring") == 0) return kRing;
  if (strcmp(name, "nvls") == 0) return kNvls;
  return strcmp(name, "pat") == 0 ? kPat : -1;
}

#if FAKE_TUNER_VERSION == 2
static ncclResult_t ask(void* context, int function, size_t bytes, int collnet, int nvls,
                        int operations, int* algorithm, int* protocol, int* channels) {
  (void)bytes, (void)collnet, (void)nvls, (void)operations;
  if (!((struct Context*)context)->alive || strcmp(order(), "fail-call") == 0)
    return ncclInternalError;
  int column = 0;
  int row = wantedRow(function, &column, channels);
  if (isOrdered("garbage")) {
    row = 99;
    column = -7;
    *channels = -3;
  }
  if (row < 0) return ncclSuccess;
  *algorithm = row;
  *protocol = column;
  return ncclSuccess;
}
#else
static ncclResult_t changeTable(void* context, int function, float** costs, int algorithms,
                                int protocols, int* channels) {
  float(*table)[kProtocols] = (float(*)[kProtocols])costs;
  if (algorithms != kAlgorithms || protocols != kProtocols) return ncclInvalidArgument;
  if (!((struct Context*)context)->alive || strcmp(order(), "fail-call") == 0)
    return ncclInternalError;
  if (strcmp(order(), "none-left") == 0) {
    for (int row = 0; row < algorithms; ++row) table[row][kSimple] = -1.0F;
    return ncclSuccess;
  }
  if (isOrdered("garbage")) {
    for (int row = 0; row < algorithms; ++row) {
      for (int each = 0; each < protocols; ++each)
        table[row][each] = table[row][each] == -1.0F ? 0.0F : (row % 2 == 0 ? -(float)NAN : -5.0F);
    }
    *channels = -3;
    return ncclSuccess;
  }
  int column = 0;
  const int row = wantedRow(function, &column, channels);
  if (row >= 0 && table[row][column] != -1.0F) table[row][column] = 0.0F;
  return ncclSuccess;
}
#if FAKE_TUNER_VERSION == 3
static ncclResult_t ask(void* context, int function, size_t bytes, int operations, float** costs,
                        int algorithms, int protocols, int* channels) {
  (void)bytes, (void)operations;
  return changeTable(context, function, costs, algorithms, protocols, channels);
}
#else
static ncclResult_t ask(void* context, int function, size_t bytes, int operations, float** costs,
                        int algorithms, int protocols, int registered, int* channels) {
  (void)bytes, (void)operations, (void)registered;
  return changeTable(context, function, costs, algorithms, protocols, channels);
}
#endif
#endif

#if FAKE_TUNER_VERSION == 5
struct Domains {
  int count, fewest, most;
};
static ncclResult_t startFive(void** context, uint64_t id, size_t ranks, size_t nodes,
                              Logger logger, struct Domains* domains, double* constants) {
  /* The base latency of a tree's LL, the first of the constants, is some us. */
  if (id == 0 || domains->count < 1 || !(constants[0] > 0 && constants[0] < 100))
    return ncclInvalidArgument;
  return start(ranks, nodes, logger, context);
}
#define INIT startFive
#else
#define INIT start
#endif

#define NAME_OF(version) ncclTunerPlugin_v##version
#define NAME(version) NAME_OF(version)

struct Plugin {
  const char* name;
  void* init;
  void* getCollInfo;
  void* stop;
};
__attribute__((visibility("default"))) struct Plugin NAME(FAKE_TUNER_VERSION) = {
    "fake", (void*)INIT, (void*)ask, (void*)stop};

__attribute__((constructor)) static void beLoaded(void) {
  hangIfOrdered("hang-open");
  if (isOrdered("no-name")) NAME(FAKE_TUNER_VERSION).name = NULL;
  if (isOrdered("no-function")) NAME(FAKE_TUNER_VERSION).getCollInfo = NULL;
}
