/* A profiler plug-in for tests, in plain C, as a user would write one: its own declarations of the
 * interface, of the version that FAKE_PROFILER_VERSION says. It writes a line for each thing that
 * it is told to the file FAKE_PROFILER_FILE, of which each rank has its own, ".RANK" (versions 1 to
 * 3 learn it from the first event): events by number, parents by theirs. FAKE_PROFILER in the
 * environment says what it does else: "mask N" asks for these events only, "fail-init",
 * "fail-start", "fail-stop" and "fail-state" fail, "none" keeps no event, "hang-open" (its
 * constructor) and "hang-init" never return, "no-function" lacks one, "no-name" has no name and
 * fails as "fail-start" does. It checks that parents
 * are alive when their children begin, and that nothing is told of an event that has ended. */
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define VERSION FAKE_PROFILER_VERSION

enum {
  kGroup = 1,
  kColl = 2,
  kP2p = 4,
  kProxyOp = 8,
  kProxyStep = 16,
  kKernelCh = 64,
  kGroupApi = 256,
  kCollApi = 512,
  kP2pApi = 1024
};

#if VERSION <= 4
typedef uint8_t Type;
#else
typedef uint64_t Type;
#endif

struct Description {
  Type type;
  void* parent;
  int rank;
  union {
#if VERSION >= 5
    struct {
      bool captured;
      int depth;
    } groupApi;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      int root;
      void* stream;
      bool captured;
    } collApi;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      void* stream;
      bool captured;
    } p2pApi;
#endif
    struct {
#if VERSION <= 3
      const char* name;
      uint64_t hash;
#endif
      uint64_t sequence;
#if VERSION == 1
      uint8_t func;
#else
      const char* func;
#endif
      const void* input;
      void* output;
      size_t count;
      int root;
#if VERSION == 1
      uint8_t datatype;
      uint32_t op;
#else
      const char* datatype;
#endif
#if VERSION <= 2
      size_t traffic;
#endif
      uint8_t channels;
      uint8_t warps;
#if VERSION == 1
      uint8_t algo;
      uint8_t proto;
#else
      const char* algo;
      const char* proto;
#endif
#if VERSION <= 2
      int collnet;
      int nvls;
#endif
#if VERSION >= 5
      void* group;
#endif
    } coll;
    struct {
#if VERSION <= 3
      const char* name;
      uint64_t hash;
#endif
#if VERSION == 1
      uint8_t func;
#else
      const char* func;
#endif
      void* buffer;
#if VERSION == 1
      uint8_t datatype;
#else
      const char* datatype;
#endif
      size_t count;
      int peer;
#if VERSION >= 4
      uint8_t channels;
#endif
#if VERSION >= 5
      void* group;
#endif
    } p2p;
    struct {
      pid_t pid;
      uint8_t channel;
      int peer;
      int steps;
      int chunk;
      int isSend;
    } proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      uint8_t channel;
      uint64_t timer;
    } kernelCh;
  };
};

union Arguments {
  struct {
    size_t bytes;
    int steps;
  } proxyOp;
  struct {
    size_t bytes;
  } proxyStep;
  struct {
    uint64_t timer;
  } kernelCh;
};

enum { kMostEvents = 65536 };

struct Event {
  int number;
  int isAlive;
  struct Context* context;
};

struct Context {
  FILE* file;
  int rank;
  int count;
  struct Event events[kMostEvents];
};

static const char* order(void) {
  const char* text = getenv("FAKE_PROFILER");
  return text == NULL ? "" : text;
}

static int isTold(const char* what) { return strcmp(order(), what) == 0; }

static ncclResult_t openFile(struct Context* context, int rank) {
  const char* pattern = getenv("FAKE_PROFILER_FILE");
  char path[4096] = "/dev/null";
  if (pattern != NULL) snprintf(path, sizeof path, "%s.%d", pattern, rank);
  context->file = fopen(path, "a");
  context->rank = rank;
  return context->file == NULL ? ncclSystemError : ncclSuccess;
}

static void hangIfOrdered(const char* what) {
  while (isTold(what)) sleep(1);
}

static ncclResult_t begin(void** context, int* mask) {
  hangIfOrdered("hang-init");
  if (isTold("fail-init")) return ncclSystemError;
  struct Context* made = calloc(1, sizeof *made);
  if (made == NULL) return ncclSystemError;
  *context = made;
  *mask = 0xfff & ~32;
  sscanf(order(), "mask %d", mask);
  return ncclSuccess;
}

#if VERSION <= 3
#define INIT begin
#else
typedef void (*Logger)(int level, unsigned long flags, const char* file, int line,
                       const char* format, ...);
static ncclResult_t beginNamed(void** context, int* mask, const char* name, uint64_t hash,
                               int nodes, int ranks, int rank, Logger logger) {
  ncclResult_t result = begin(context, mask);
  if (result != ncclSuccess) return result;
  logger(3, 0x1, __FILE__, __LINE__, "fake profiler of rank %d of %d on %d nodes", rank, ranks,
         nodes);
  if (hash == 0 || name == NULL) return ncclInvalidArgument;
  return openFile(*context, rank);
}
#if VERSION == 4
#define INIT beginNamed
#else
static ncclResult_t beginFive(void** context, uint64_t hash, int* mask, const char* name, int nodes,
                              int ranks, int rank, Logger logger) {
  return beginNamed(context, mask, name, hash, nodes, ranks, rank, logger);
}
#define INIT beginFive
#endif
#endif

/* The number of a parent that is alive; 0: none, -1: one that has ended. */
static int parentOf(const struct Description* d) {
  const struct Event* parent = d->parent;
  if (parent == NULL) return 0;
  return parent->isAlive ? parent->number : -1;
}

static void tellCollective(FILE* file, const struct Description* d) {
#if VERSION == 1
  fprintf(file, " func %d type %d algo %d", d->coll.func, d->coll.datatype, d->coll.algo);
#else
  fprintf(file, " func %s type %s algo %s", d->coll.func, d->coll.datatype, d->coll.algo);
#endif
  fprintf(file, " seq %d count %zu", (int)d->coll.sequence, d->coll.count);
#if VERSION >= 5
  const struct Event* group = d->coll.group;
  fprintf(file, " group %d", group == NULL ? 0 : group->number);
#endif
}

static void tellTransfer(FILE* file, const struct Description* d) {
#if VERSION == 1
  fprintf(file, " func %d type %d", d->p2p.func, d->p2p.datatype);
#else
  fprintf(file, " func %s type %s", d->p2p.func, d->p2p.datatype);
#endif
  fprintf(file, " count %zu peer %d", d->p2p.count, d->p2p.peer);
}

static void tell(FILE* file, int number, const struct Description* d) {
  fprintf(file, "start %d kind %d parent %d", number, (int)d->type, parentOf(d));
  switch (d->type) {
    case kColl: tellCollective(file, d); break;
    case kP2p: tellTransfer(file, d); break;
    case kProxyOp:
      fprintf(file, " peer %d send %d steps %d chunk %d", d->proxyOp.peer, d->proxyOp.isSend,
              d->proxyOp.steps, d->proxyOp.chunk);
      break;
    case kProxyStep: fprintf(file, " step %d", d->proxyStep.step); break;
#if VERSION >= 5
    case kGroupApi: fprintf(file, " depth %d", d->groupApi.depth); break;
    case kCollApi: fprintf(file, " func %s", d->collApi.func); break;
    case kP2pApi: fprintf(file, " func %s", d->p2pApi.func); break;
#endif
    default: break;
  }
  fprintf(file, "\n");
}

static ncclResult_t startEvent(void* context, void** event, struct Description* d) {
  struct Context* mine = context;
  if (isTold("fail-start") || isTold("no-name")) return ncclInternalError;
  if (mine->file == NULL && openFile(mine, d->rank) != ncclSuccess) return ncclSystemError;
  if (d->rank != mine->rank || mine->count == kMostEvents) return ncclInvalidArgument;
  *event = NULL;
  if (isTold("none")) return ncclSuccess;
  struct Event* made = &mine->events[mine->count++];
  made->number = mine->count;
  made->isAlive = 1;
  made->context = mine;
  tell(mine->file, made->number, d);
  *event = made;
  return ncclSuccess;
}

static ncclResult_t stopEvent(void* event) {
  struct Event* mine = event;
  if (isTold("fail-stop")) return ncclInternalError;
  fprintf(mine->context->file, mine->isAlive ? "stop %d\n" : "twice %d\n", mine->number);
  mine->isAlive = 0;
  return ncclSuccess;
}

static ncclResult_t recordState(void* event, int state, union Arguments* arguments) {
  struct Event* mine = event;
  if (isTold("fail-state")) return ncclInternalError;
  fprintf(mine->context->file, mine->isAlive ? "state %d is %d bytes %zu\n" : "late %d is %d %zu\n",
          mine->number, state, arguments->proxyStep.bytes);
  return ncclSuccess;
}

static ncclResult_t end(void* context) {
  struct Context* mine = context;
  if (mine->file != NULL) {
    fprintf(mine->file, "finalize\n");
    fclose(mine->file);
  }
  free(mine);
  return ncclSuccess;
}

#define NAME_OF(version) ncclProfiler_v##version
#define NAME(version) NAME_OF(version)

struct Plugin {
  const char* name;
  void* init;
  void* startEvent;
  void* stopEvent;
  void* recordState;
  void* end;
};
__attribute__((visibility("default"))) struct Plugin NAME(VERSION) = {
    "fake", (void*)INIT, (void*)startEvent, (void*)stopEvent, (void*)recordState, (void*)end};

__attribute__((constructor)) static void beLoaded(void) {
  hangIfOrdered("hang-open");
  if (isTold("no-name")) NAME(VERSION).name = NULL;
  if (isTold("no-function")) NAME(VERSION).stopEvent = NULL;
}
