/* The network plug-in for tests as each version of the interface has it. Included by net.c, once,
 * behind what it names. */
#pragma once

#if FAKE_NET_VERSION >= 10
static void reportClass(int trafficClass) {
  const char* report = getenv("FAKE_NET_CLASS_REPORT");
  FILE* file = report == NULL ? NULL : fopen(report, "a");
  if (file == NULL) return;
  fprintf(file, "%d\n", trafficClass);
  fclose(file);
}
#endif

#if FAKE_NET_VERSION >= 9
typedef size_t MessageSize;
#else
typedef int MessageSize;
#endif
#if FAKE_NET_VERSION >= 11
enum { kContextMagic = 0xc0 };
struct Context {
  int magic;
  int trafficClass;
};
static int isContext(const struct Context* context) {
  return context != NULL && context->magic == kContextMagic;
}
static ncclResult_t start11(void** made, uint64_t id, const int* config, Logger logger,
                            Profiler profiler) {
  if (id == 0 || config == NULL || profiler == NULL) return ncclInvalidArgument;
  const ncclResult_t result = begin(logger);
  struct Context* context = malloc(sizeof *context);
  if (result != ncclSuccess || context == NULL) return result != 0 ? result : ncclSystemError;
  *context = (struct Context){.magic = kContextMagic, .trafficClass = *config};
  *made = context;
  return ncclSuccess;
}
static ncclResult_t finish11(void* context) {
  if (!isContext(context)) return ncclInvalidArgument;
  hangIfOrdered("hang-finalize");
  free(context);
  return ncclSuccess;
}
static ncclResult_t listen11(void* context, int device, void* handle, void** made) {
  return isContext(context) ? listenOn(device, handle, made) : ncclInvalidArgument;
}
static ncclResult_t connect11(void* context, int device, void* handle, void** made, void** on) {
  (void)on;
  if (!isContext(context)) return ncclInvalidArgument;
  const ncclResult_t result = connectTo(device, handle, made);
  if (result == ncclSuccess && *made != NULL) reportClass(((struct Context*)context)->trafficClass);
  return result;
}
#elif FAKE_NET_VERSION == 10
static ncclResult_t start10(Logger logger, Profiler profiler) {
  static atomic_int starts;
  if (profiler == NULL) return ncclInvalidArgument;
  if (atomic_fetch_add(&starts, 1) > 0 && isOrdered("once")) return ncclInvalidUsage;
  return begin(logger);
}
static ncclResult_t connect10(int device, const int* config, void* handle, void** made, void** on) {
  (void)on;
  if (config == NULL) return ncclInvalidArgument;
  const ncclResult_t result = connectTo(device, handle, made);
  if (result == ncclSuccess && *made != NULL) reportClass(*config);
  return result;
}
#elif FAKE_NET_VERSION >= 7
static ncclResult_t connect7(int device, void* handle, void** made, void** on) {
  (void)on;
  return connectTo(device, handle, made);
}
#endif
#if FAKE_NET_VERSION >= 7
static ncclResult_t accept7(void* listener, void** made, void** on) {
  (void)on;
  return acceptFrom(listener, made);
}
#endif

#if FAKE_NET_VERSION >= 10
static ncclResult_t isend(void* comm, void* data, MessageSize size, int tag, void* memory,
                          void* parent, void** request) {
  (void)tag, (void)parent;
  return sendMessage(comm, data, (size_t)size, memory, request);
}
static ncclResult_t irecv(void* comm, int count, void** data, MessageSize* sizes, int* tags,
                          void** memories, void** parents, void** request) {
  (void)tags;
  if (parents == NULL) return ncclInvalidArgument;
  return receiveMessage(comm, count, data, (size_t)sizes[0], memories, request);
}
#else
static ncclResult_t isend(void* comm, void* data, MessageSize size, int tag, void* memory,
                          void** request) {
  (void)tag;
  return sendMessage(comm, data, (size_t)size, memory, request);
}
static ncclResult_t irecv(void* comm, int count, void** data, MessageSize* sizes, int* tags,
                          void** memories, void** request) {
  (void)tags;
  return receiveMessage(comm, count, data, (size_t)sizes[0], memories, request);
}
#endif

struct Plugin {
  const char* name;
  void *init, *devices, *getProperties, *listen, *connect, *accept;
  void *regMr, *regMrDmaBuf, *deregMr, *isend, *irecv, *iflush, *test;
  void *closeSend, *closeRecv, *closeListen;
  void *getDeviceMr, *irecvConsumed, *makeVDevice, *finalize, *setNetAttr;
};

#if FAKE_NET_VERSION >= 11
#define INIT start11
#define LISTEN listen11
#define CONNECT connect11
#define FINALIZE (void*)finish11
#else
#define LISTEN listenOn
#define FINALIZE NULL
#if FAKE_NET_VERSION == 10
#define INIT start10
#define CONNECT connect10
#else
#define INIT begin
#if FAKE_NET_VERSION >= 7
#define CONNECT connect7
#else
#define CONNECT connectTo
#endif
#endif
#endif
#if FAKE_NET_VERSION >= 7
#define ACCEPT accept7
#else
#define ACCEPT acceptFrom
#endif

#define NAME_OF(version) ncclNetPlugin_v##version
#define NAME(version) NAME_OF(version)

__attribute__((visibility("default"))) const struct Plugin NAME(FAKE_NET_VERSION) = {
    .name = FAKE_NET_NAME,
    .init = (void*)INIT,
    .devices = (void*)devices,
    .getProperties = (void*)describe,
    .listen = (void*)LISTEN,
    .connect = (void*)CONNECT,
    .accept = (void*)ACCEPT,
    .regMr = (void*)enrollAny,
    .regMrDmaBuf = (void*)enrollDmaBuffer,
    .deregMr = (void*)releaseAny,
    .isend = (void*)isend,
    .irecv = (void*)irecv,
    .iflush = (void*)flush,
    .test = (void*)test,
    .closeSend = (void*)closeComm,
    .closeRecv = (void*)closeComm,
    .closeListen = (void*)closeListener,
    .finalize = FINALIZE,
};
