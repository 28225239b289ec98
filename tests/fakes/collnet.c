/* A collective-network plug-in for tests, in plain C, as a user would write one: its own
 * declarations of the interface, of the version that FAKE_COLLNET_VERSION says. What its members
 * hand in is reduced by another process (collnet_reducer.cc), which listens at FAKE_COLLNET_AT
 * ("127.0.0.1:4000"); it has FAKE_COLLNET_DEVICES adapters (2 unless set). It insists on its
 * contract: memory that was registered, at most 32 requests, types and operations that it has.
 *
 * FAKE_COLLNET in the environment says what goes wrong: "hang-init", "hang-devices",
 * "hang-support", "hang-listen", "hang-connect", "hang-unlisten", "hang-register", "hang-release",
 * "hang-close" and "hang-finish" never return, nor do "hang-reduce N" and "hang-test N" (the Nth of
 * the process); "fail-init", "no-devices", "fail-listen", "fail-connect", "never-connect";
 * "fail-reduce N", "fail-test N";
 * "no-floats": it reduces integers only; "short": 1000 bytes at a time; "slow": every other call
 * has to be made again. Gathers and scatters count as reductions. FAKE_COLLNET_REPORT names a file,
 * to which each group's adapter, members, reductions, bytes, gathers and scatters are written when
 * it closes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collnet_frames.h"

#define FAKE_VERSION FAKE_COLLNET_VERSION
#define FAKE_ORDERS "FAKE_COLLNET"
#define FAKE_ADAPTER "switch"
#include "net_plugin.h"

static atomic_long reductions, tests;

/* ---- groups ---- */

struct Group;
/* Of places that hold a vector together, one after the other. */
struct Place {
  char* at;
  size_t bytes;
};
enum { kMostPlaces = 8 };

/* Of the order in which they were made: parts go out, and results come back, the oldest first. */
struct Request {
  struct Group* group;
  struct Place input[kMostPlaces];
  struct Place output[kMostPlaces];
  struct CollnetFrame frame;  /* as it is sent */
  struct CollnetFrame answer; /* as it came */
  size_t sent, received;      /* with the frames */
  int isUsed, isDone;
};

struct Group {
  int fd;
  int device;
  int members;
  unsigned first, count; /* of those that are under way */
  unsigned long reductions, gathers, scatters;
  unsigned long long bytes;
  struct Request requests[kMaxRequests];
};

struct Handle {
  uint32_t magic;
  uint32_t zero;
  unsigned char group[16];
};

struct Listener {
  int device;
  int fd; /* towards the reducer, once connecting has begun */
};

static ncclResult_t begin(Logger logger) {
  hangIfOrdered("hang-init");
  if (isOrdered("fail-init")) return ncclSystemError;
  say = logger;
  say(3, 0x10, __FILE__, __LINE__, "fake collective network, version %d", FAKE_COLLNET_VERSION);
  return ncclSuccess;
}

static ncclResult_t listenOn(int device, void* place, void** made) {
  hangIfOrdered("hang-listen");
  if (isOrdered("fail-listen")) return ncclSystemError;
  if (device < 0 || device >= deviceCount()) return ncclInternalError;
  struct Handle handle = {.magic = 0xc011};
  struct Listener* listener = malloc(sizeof *listener);
  if (listener == NULL || getrandom(handle.group, sizeof handle.group, 0) != sizeof handle.group) {
    free(listener);
    return ncclSystemError;
  }
  *listener = (struct Listener){.device = device, .fd = -1};
  memset(place, 0, 128);
  memcpy(place, &handle, sizeof handle);
  *made = listener;
  return ncclSuccess;
}

static int dialReducer(void) {
  const char* at = getenv("FAKE_COLLNET_AT");
  const char* colon = at == NULL ? NULL : strrchr(at, ':');
  char host[64];
  if (colon == NULL || (size_t)(colon - at) >= sizeof host) return -1;
  memcpy(host, at, (size_t)(colon - at));
  host[colon - at] = 0;
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(colon + 1))};
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static ncclResult_t connectGroup(void** handles, int members, int member, void* place,
                                 void** made) {
  struct Listener* listener = place;
  *made = NULL;
  hangIfOrdered("hang-connect");
  if (isOrdered("fail-connect")) return ncclSystemError;
  if (isOrdered("never-connect") || mustRepeat()) return ncclSuccess;
  if (listener->fd < 0) {
    struct Handle first;
    memcpy(&first, handles[0], sizeof first);
    struct CollnetHello hello = {
        .magic = kCollnetMagic, .members = (uint32_t)members, .member = (uint32_t)member};
    if (first.magic != 0xc011) return ncclInternalError;
    memcpy(hello.group, first.group, sizeof hello.group);
    listener->fd = dialReducer();
    if (listener->fd < 0) return ncclSystemError;
    if (send(listener->fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
      return ncclSystemError;
  }
  char isComplete; /* all members have come */
  const ssize_t count = recv(listener->fd, &isComplete, 1, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return ncclSuccess;
  if (count != 1) return ncclRemoteError;
  struct Group* group = calloc(1, sizeof *group);
  if (group == NULL) return ncclSystemError;
  group->fd = listener->fd;
  group->device = listener->device;
  group->members = members;
  listener->fd = -1;
  *made = group;
  return ncclSuccess;
}

static ncclResult_t closeListener(void* place) {
  struct Listener* listener = place;
  hangIfOrdered("hang-unlisten");
  if (listener->fd >= 0) close(listener->fd);
  free(listener);
  return ncclSuccess;
}

static ncclResult_t closeGroup(void* place) {
  struct Group* group = place;
  hangIfOrdered("hang-close");
  const char* report = getenv("FAKE_COLLNET_REPORT");
  FILE* file = report == NULL ? NULL : fopen(report, "a");
  if (file != NULL) {
    fprintf(file, "%d %d %lu %llu %lu %lu\n", group->device, group->members, group->reductions,
            group->bytes, group->gathers, group->scatters);
    fclose(file);
  }
  close(group->fd);
  free(group);
  return ncclSuccess;
}

/* ---- reductions ---- */

static size_t bytesOfType(ncclDataType_t type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (unsigned)type < sizeof bytes / sizeof bytes[0] ? bytes[type] : 0;
}

static ncclResult_t reduceSupport(ncclDataType_t type, ncclRedOp_t op, int* isSupported) {
  hangIfOrdered("hang-support");
  const int isFloat = type >= ncclFloat16;
  *isSupported = bytesOfType(type) != 0 && op <= ncclMin && !(isOrdered("no-floats") && isFloat);
  return ncclSuccess;
}

struct Work {
  unsigned char kind; /* kCollnetReduce, ... */
  const struct Place* input;
  int inputs;
  const struct Place* output;
  int outputs;
  ncclDataType_t type;
  ncclRedOp_t op;
};

static size_t bytesIn(const struct Place* places, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += places[i].bytes;
  return bytes;
}

static ncclResult_t start(struct Group* group, const struct Work* work, void** request) {
  const size_t bytes = bytesIn(work->input, work->inputs);
  const size_t most = bytesIn(work->output, work->outputs);
  *request = NULL;
  const long number = atomic_fetch_add(&reductions, 1);
  if (isNth("fail-reduce", number)) return ncclSystemError;
  while (isNth("hang-reduce", number)) sleep(1);
  if (bytes == 0 || (isOrdered("short") && (bytes > 1000 || most > 1000)))
    return ncclInvalidArgument;
  if (work->inputs > kMostPlaces || work->outputs > kMostPlaces) return ncclInvalidUsage;
  if (mustRepeat()) return ncclSuccess;
  if (group->count == kMaxRequests) return ncclInternalError;
  struct Request* made = &group->requests[(group->first + group->count) % kMaxRequests];
  if (made->isUsed) return ncclSuccess; /* done, but not asked about yet */
  *made = (struct Request){.group = group,
                           .frame = {.bytes = (uint32_t)bytes,
                                     .type = (uint8_t)work->type,
                                     .op = (uint8_t)work->op,
                                     .work = work->kind},
                           .isUsed = 1};
  memcpy(made->input, work->input, (size_t)work->inputs * sizeof *work->input);
  memcpy(made->output, work->output, (size_t)work->outputs * sizeof *work->output);
  ++group->count;
  if (work->kind == kCollnetReduce) ++group->reductions;
  if (work->kind == kCollnetGather) ++group->gathers;
  if (work->kind == kCollnetScatter) ++group->scatters;
  group->bytes += bytes;
  *request = made;
  return ncclSuccess;
}

static int canReduce(ncclDataType_t type, ncclRedOp_t op) {
  int isSupported = 0;
  reduceSupport(type, op, &isSupported);
  return isSupported;
}

static ncclResult_t allReduce(void* group, void* input, void* output, size_t count,
                              ncclDataType_t type, ncclRedOp_t op, void* inputMemory,
                              void* outputMemory, void** request) {
  const size_t bytes = count * bytesOfType(type);
  const struct Place from = {input, bytes}, to = {output, bytes};
  if (!canReduce(type, op)) return ncclInvalidArgument;
  if (!isWithin(input, bytes, inputMemory) || !isWithin(output, bytes, outputMemory))
    return ncclInternalError;
  return start(group,
               &(struct Work){.kind = kCollnetReduce,
                              .input = &from,
                              .inputs = 1,
                              .output = &to,
                              .outputs = 1,
                              .type = type,
                              .op = op},
               request);
}

#if FAKE_COLLNET_VERSION >= 8
#if FAKE_COLLNET_VERSION >= 9
typedef size_t PartSize;
#else
typedef uint32_t PartSize;
#endif
struct Part {
  void* memory;
  void* data;
  PartSize size;
};

/* Of lists that cover the whole vector of all members: others are not offered. */
static ncclResult_t placesOf(const struct Part* parts, int count, size_t bytes,
                             struct Place* places) {
  if (count < 1 || count > kMostPlaces) return ncclInvalidArgument;
  for (int i = 0; i < count; ++i) {
    if (!isWithin(parts[i].data, parts[i].size, parts[i].memory)) return ncclInternalError;
    places[i] = (struct Place){parts[i].data, parts[i].size};
  }
  return bytesIn(places, count) == bytes ? ncclSuccess : ncclInvalidArgument;
}

static int isWhole(const struct Group* group, size_t bytesPerMember, size_t offset, size_t bytes) {
  return offset == 0 && bytes == bytesPerMember * (size_t)group->members;
}

static ncclResult_t allGather(void* place, void* input, int count, struct Part* parts,
                              size_t bytesPerMember, size_t offset, size_t bytes, void* memory,
                              void** request) {
  struct Group* group = place;
  const struct Place from = {input, bytesPerMember};
  struct Place to[kMostPlaces];
  if (!isWhole(group, bytesPerMember, offset, bytes)) return ncclInvalidUsage;
  const ncclResult_t result = placesOf(parts, count, bytes, to);
  if (result != ncclSuccess) return result;
  if (!isWithin(input, bytesPerMember, memory)) return ncclInternalError;
  return start(
      group,
      &(struct Work){
          .kind = kCollnetGather, .input = &from, .inputs = 1, .output = to, .outputs = count},
      request);
}

static ncclResult_t reduceScatter(void* place, int count, struct Part* parts, void* output,
                                  size_t bytesPerMember, size_t offset, size_t bytes,
                                  ncclDataType_t type, ncclRedOp_t op, void* memory,
                                  void** request) {
  struct Group* group = place;
  const struct Place to = {output, bytesPerMember};
  struct Place from[kMostPlaces];
  if (!isWhole(group, bytesPerMember, offset, bytes)) return ncclInvalidUsage;
  const ncclResult_t result = placesOf(parts, count, bytes, from);
  if (result != ncclSuccess) return result;
  if (!canReduce(type, op) || bytesPerMember % bytesOfType(type) != 0) return ncclInvalidArgument;
  if (!isWithin(output, bytesPerMember, memory)) return ncclInternalError;
  return start(group,
               &(struct Work){.kind = kCollnetScatter,
                              .input = from,
                              .inputs = count,
                              .output = &to,
                              .outputs = 1,
                              .type = type,
                              .op = op},
               request);
}
#endif

/* What comes at this place of a frame and its payload. */
static struct Place placeAt(struct CollnetFrame* frame, struct Place* payload, size_t at) {
  const size_t head = sizeof *frame;
  if (at < head) return (struct Place){(char*)frame + at, head - at};
  at -= head;
  while (at >= payload->bytes) at -= (payload++)->bytes;
  return (struct Place){payload->at + at, payload->bytes - at};
}

/* The bytes from `at` to `end`, of a frame first, then of its payload; 1: all, 0: not yet, -1:
 * broken. */
static int move(int fd, struct CollnetFrame* frame, struct Place* payload, size_t end, size_t* at,
                int isSend) {
  while (*at < end) {
    struct Place next = placeAt(frame, payload, *at);
    if (next.bytes > end - *at) next.bytes = end - *at;
    const ssize_t count = isSend ? send(fd, next.at, next.bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : recv(fd, next.at, next.bytes, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return 0;
    if (count <= 0) return -1;
    *at += (size_t)count;
  }
  return 1;
}

static ncclResult_t sendParts(struct Group* group) {
  for (unsigned i = 0; i < group->count; ++i) {
    struct Request* request = &group->requests[(group->first + i) % kMaxRequests];
    const size_t end = sizeof request->frame + request->frame.bytes;
    const int state = move(group->fd, &request->frame, request->input, end, &request->sent, 1);
    if (state < 0) return ncclRemoteError;
    if (state == 0) break;
  }
  return ncclSuccess;
}

static ncclResult_t advance(struct Group* group) {
  ncclResult_t result = sendParts(group);
  while (result == ncclSuccess && group->count > 0) {
    struct Request* request = &group->requests[group->first];
    const size_t head = sizeof request->answer;
    if (request->received < head) {
      const int state = move(group->fd, &request->answer, NULL, head, &request->received, 0);
      if (state <= 0) return state < 0 ? ncclRemoteError : ncclSuccess;
      if (request->answer.status != 0 ||
          request->answer.bytes != bytesIn(request->output, kMostPlaces)) {
        say(2, 0x10, __FILE__, __LINE__, "members reduce different things");
        return ncclInvalidUsage;
      }
    }
    const int state = move(group->fd, &request->answer, request->output,
                           head + request->answer.bytes, &request->received, 0);
    if (state <= 0) return state < 0 ? ncclRemoteError : ncclSuccess;
    request->isDone = 1;
    group->first = (group->first + 1) % kMaxRequests;
    --group->count;
  }
  return result;
}

static ncclResult_t test(void* place, int* done, int* size) {
  struct Request* request = place;
  *done = 0;
  if (!request->isUsed) return ncclInternalError;
  const long number = atomic_fetch_add(&tests, 1);
  if (isNth("fail-test", number)) return ncclSystemError;
  while (isNth("hang-test", number)) sleep(1);
  if (mustRepeat()) return ncclSuccess;
  const ncclResult_t result = request->isDone ? ncclSuccess : advance(request->group);
  if (!request->isDone) return result;
  if (size != NULL) *size = (int)request->frame.bytes;
  *done = 1;
  request->isUsed = 0;
  return ncclSuccess;
}

/* ---- the versions of the interface ---- */

#if FAKE_COLLNET_VERSION >= 9
typedef size_t Count;
#else
typedef int Count;
#endif
static ncclResult_t allReduceCounted(void* group, void* input, void* output, Count count,
                                     ncclDataType_t type, ncclRedOp_t op, void* inputMemory,
                                     void* outputMemory, void** request) {
  return allReduce(group, input, output, (size_t)count, type, op, inputMemory, outputMemory,
                   request);
}

#if FAKE_COLLNET_VERSION >= 11
static int theContext;
static ncclResult_t start11(void** context, uint64_t id, Logger logger) {
  if (id == 0) return ncclInvalidArgument;
  *context = &theContext;
  return begin(logger);
}
static ncclResult_t finish11(void* context) {
  hangIfOrdered("hang-finish");
  return context == &theContext ? ncclSuccess : ncclInvalidArgument;
}
static ncclResult_t listen11(void* context, int device, void* handle, void** made) {
  return context == &theContext ? listenOn(device, handle, made) : ncclInvalidArgument;
}
#endif

struct Plugin {
  const char* name;
#if FAKE_COLLNET_VERSION >= 11
  ncclResult_t (*init)(void**, uint64_t, Logger);
#else
  ncclResult_t (*init)(Logger);
#endif
  ncclResult_t (*devices)(int*);
  ncclResult_t (*getProperties)(int, struct Properties*);
#if FAKE_COLLNET_VERSION >= 11
  ncclResult_t (*listen)(void*, int, void*, void**);
#else
  ncclResult_t (*listen)(int, void*, void**);
#endif
  ncclResult_t (*connect)(void**, int, int, void*, void**);
  ncclResult_t (*reduceSupport)(ncclDataType_t, ncclRedOp_t, int*);
  ncclResult_t (*regMr)(void*, void*, RegisterSize, int, void**);
  void* regMrDmaBuf;
  ncclResult_t (*deregMr)(void*, void*);
  ncclResult_t (*iallreduce)(void*, void*, void*, Count, ncclDataType_t, ncclRedOp_t, void*, void*,
                             void**);
#if FAKE_COLLNET_VERSION >= 8
  ncclResult_t (*iallgather)(void*, void*, int, struct Part*, size_t, size_t, size_t, void*,
                             void**);
  ncclResult_t (*ireducescatter)(void*, int, struct Part*, void*, size_t, size_t, size_t,
                                 ncclDataType_t, ncclRedOp_t, void*, void**);
#endif
  void* iflush;
  ncclResult_t (*test)(void*, int*, int*);
  ncclResult_t (*closeColl)(void*);
  ncclResult_t (*closeListen)(void*);
#if FAKE_COLLNET_VERSION >= 9
  void* makeVDevice;
#endif
#if FAKE_COLLNET_VERSION >= 11
  ncclResult_t (*finalize)(void*);
#endif
};

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclCollNetPlugin_v, version)

__attribute__((visibility("default"))) const struct Plugin SYMBOL(FAKE_COLLNET_VERSION) = {
    .name = "FakeSwitch",
#if FAKE_COLLNET_VERSION >= 11
    .init = start11,
    .listen = listen11,
    .finalize = finish11,
#else
    .init = begin,
    .listen = listenOn,
#endif
    .devices = devices,
    .getProperties = describe,
    .connect = connectGroup,
    .reduceSupport = reduceSupport,
    .regMr = enroll,
    .deregMr = release,
    .iallreduce = allReduceCounted,
#if FAKE_COLLNET_VERSION >= 8
    .iallgather = allGather,
    .ireducescatter = reduceScatter,
#endif
    .test = test,
    .closeColl = closeGroup,
    .closeListen = closeListener,
};
