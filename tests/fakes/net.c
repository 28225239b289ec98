/* A network plug-in for tests, in plain C, as a user would write one: its own declarations of the
 * interface, of the version that FAKE_NET_VERSION says. It moves messages over TCP on the loopback
 * interface, or the one with the IPv4 address FAKE_NET_ADDRESS, on FAKE_NET_DEVICES adapters (2
 * unless set), and insists on its contract: requests in memory that was registered, at most 32 of
 * them.
 *
 * With FAKE_NET_GPU it takes memory of GPUs, too: "address", by copies of the driver's
 * (libcuda.so.1) to and from buffers of its own, so it works on real ones; "dmabuf", by mapping the
 * descriptor, or copies where that cannot be mapped; "both". What was received there shows up with
 * iflush, not before.
 *
 * FAKE_NET in the environment says what goes wrong: "fail-init", "no-devices", "fail-listen",
 * "fail-connect", "fail-accept", "never-connect", "fail-gpu" (registration of GPUs' memory);
 * "hang-open" (its constructor), "hang-init", "hang-devices", "hang-listen", "hang-connect",
 * "hang-accept": it never returns;
 * "once" (version 10): a second init of the process fails, as before version 11 none is to come;
 * "fail-send N", "fail-recv N", "fail-test N" (the Nth of the process), "short N" (the Nth receive
 * tells one byte less); "hang-send N", "hang-recv N", "hang-test N", "hang-register N", and, each
 * time, "hang-release", "hang-close-send", "hang-close-recv", "hang-close-listen", "hang-finalize";
 * "late-send N", "late-recv N", "late-test N": they take a second; "slow": every other call has to
 * be made again. FAKE_NET_REPORT names a
 * file, to which each adapter's bytes sent are written when its connections close,
 * FAKE_NET_CLASS_REPORT one for the traffic class of each connection made (from version 10 on);
 * FAKE_NET_GPU_REPORT one for what was done with GPUs' memory until then: the process, what it
 * registered, gave back, sent, received, flushed. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FAKE_VERSION FAKE_NET_VERSION
#define FAKE_ORDERS "FAKE_NET"
#define FAKE_ADAPTER "fake"
static int memoryKinds(void);
#define FAKE_MEMORY_KINDS memoryKinds()
#include "net_gpu.h"
#ifndef FAKE_NET_NAME
#define FAKE_NET_NAME "Fake"
#endif

typedef ncclResult_t (*Profiler)(void** event, int type, void* parent, int64_t id, void* data);

static atomic_long sends, receives, arrivals, tests;
static atomic_ullong bytesOf[kMaxDevices];

/* ---- connections ---- */

struct Comm;
struct Request {
  struct Comm* comm;
  char* data;
  size_t size;  /* of a receive: the room */
  size_t moved; /* with the header */
  uint32_t header;
  int isUsed;
  int isDone;
  const struct Memory* memory;
  char* target; /* of a receive into a GPU's memory: where it is to go; data is a buffer of ours */
  int isSentFromGpu;
  int isFlush;
};

/* Requests are a ring in the order in which they were made: bytes move for the oldest first. */
struct Comm {
  int fd;
  int device;
  int isSender;
  unsigned first, count;
  struct Request requests[kMaxRequests];
  struct Arrival arrivals[kMaxArrivals]; /* in a GPU's memory, not yet to be seen there */
  unsigned arrivalCount;
};

struct Listener {
  int fd;
  int device;
};

struct Handle {
  uint32_t magic;
  uint16_t port;
  uint16_t zero;
  uint32_t address; /* in the network's order */
  int fd;           /* the connecting side's state, as real plug-ins keep theirs */
};

__attribute__((constructor)) static void beLoaded(void) { hangIfOrdered("hang-open"); }

static ncclResult_t begin(Logger logger) {
  hangIfOrdered("hang-init");
  if (isOrdered("fail-init")) return ncclSystemError;
  say = logger;
  if (memoryKinds() != kHostMemory && !openGpus()) return ncclSystemError;
  say(3, 0x10, __FILE__, __LINE__, "fake network, version %d", FAKE_NET_VERSION);
  return ncclSuccess;
}

static uint32_t ownAddress(void) {
  const char* text = getenv("FAKE_NET_ADDRESS");
  return text == NULL ? htonl(INADDR_LOOPBACK) : inet_addr(text);
}

static ncclResult_t listenOn(int device, void* place, void** made) {
  hangIfOrdered("hang-listen");
  if (isOrdered("fail-listen")) return ncclSystemError;
  if (device < 0 || device >= deviceCount()) return ncclInternalError;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = ownAddress()};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, length) != 0 || listen(fd, 16) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &length) != 0) {
    if (fd >= 0) close(fd);
    return ncclSystemError;
  }
  struct Listener* listener = malloc(sizeof *listener);
  if (listener == NULL) return ncclSystemError;
  *listener = (struct Listener){.fd = fd, .device = device};
  memset(place, 0, 128);
  *(struct Handle*)place = (struct Handle){.magic = 0xfa4e,
                                           .port = ntohs(address.sin_port),
                                           .address = address.sin_addr.s_addr,
                                           .fd = -1};
  *made = listener;
  return ncclSuccess;
}

static ncclResult_t makeComm(int fd, int device, int isSender, void** made) {
  struct Comm* comm = calloc(1, sizeof *comm);
  if (comm == NULL) return ncclSystemError;
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  comm->fd = fd;
  comm->device = device;
  comm->isSender = isSender;
  *made = comm;
  return ncclSuccess;
}

static ncclResult_t connectTo(int device, void* place, void** made) {
  struct Handle* handle = place;
  *made = NULL;
  if (handle->magic != 0xfa4e || device < 0 || device >= deviceCount()) return ncclInternalError;
  hangIfOrdered("hang-connect");
  if (isOrdered("fail-connect")) return ncclSystemError;
  if (isOrdered("never-connect") || mustRepeat()) return ncclSuccess;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = handle->address, .sin_port = htons(handle->port)};
  if (handle->fd < 0) {
    handle->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (handle->fd < 0) return ncclSystemError;
  }
  if (connect(handle->fd, (struct sockaddr*)&address, sizeof address) != 0) {
    if (errno == EINPROGRESS || errno == EALREADY || errno == EINTR) return ncclSuccess;
    if (errno != EISCONN) {
      close(handle->fd);
      return ncclSystemError;
    }
  }
  return makeComm(handle->fd, device, 1, made);
}

static ncclResult_t acceptFrom(void* place, void** made) {
  struct Listener* listener = place;
  *made = NULL;
  hangIfOrdered("hang-accept");
  if (isOrdered("fail-accept")) return ncclSystemError;
  if (mustRepeat()) return ncclSuccess;
  const int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return errno == EAGAIN || errno == EINTR ? ncclSuccess : ncclSystemError;
  return makeComm(fd, listener->device, 0, made);
}

static ncclResult_t closeListener(void* place) {
  struct Listener* listener = place;
  hangIfOrdered("hang-close-listen");
  close(listener->fd);
  free(listener);
  return ncclSuccess;
}

static ncclResult_t closeComm(void* place) {
  struct Comm* comm = place;
  hangIfOrdered(comm->isSender ? "hang-close-send" : "hang-close-recv");
  const char* report = getenv("FAKE_NET_REPORT");
  if (comm->isSender && report != NULL) {
    FILE* file = fopen(report, "a");
    if (file != NULL) {
      fprintf(file, "%d %llu\n", comm->device, atomic_exchange(&bytesOf[comm->device], 0));
      fclose(file);
    }
  }
  reportGpus();
  for (unsigned i = 0; i < comm->arrivalCount; ++i) giveBuffer(comm->arrivals[i].buffer);
  for (unsigned i = 0; i < kMaxRequests; ++i) {
    const struct Request* request = &comm->requests[i];
    if (request->isUsed && (request->target != NULL || request->isSentFromGpu))
      giveBuffer(request->data);
  }
  close(comm->fd);
  free(comm);
  return ncclSuccess;
}

/* ---- messages ---- */

static ncclResult_t start(struct Comm* comm, void* data, size_t size, const struct Memory* memory,
                          void** request) {
  *request = NULL;
  if (!isWithin(data, size, memory)) return ncclInternalError;
  if (mustRepeat()) return ncclSuccess;
  if (comm->count == kMaxRequests) return ncclInternalError;
  struct Request* made = &comm->requests[(comm->first + comm->count) % kMaxRequests];
  if (made->isUsed) return ncclSuccess; /* done, but not asked about yet */
  char* target = NULL;
  const int isOnGpu = memory->isOnGpu;
  if (isOnGpu) {
    if (size > kGpuBufferBytes) return ncclInternalError;
    char* buffer = takeBuffer();
    if (buffer == NULL) return ncclSuccess;
    if (!comm->isSender) {
      target = data;
      atomic_fetch_add(&gpuReceives, 1);
    } else if (!readGpu(buffer, data, size, memory)) {
      giveBuffer(buffer);
      return ncclSystemError;
    } else {
      atomic_fetch_add(&gpuSends, 1);
    }
    data = buffer;
  }
  *made = (struct Request){.comm = comm,
                           .data = data,
                           .size = size,
                           .header = (uint32_t)size,
                           .isUsed = 1,
                           .target = target,
                           .memory = memory,
                           .isSentFromGpu = isOnGpu && comm->isSender};
  ++comm->count;
  *request = made;
  return ncclSuccess;
}

/* Of a message: its length, then its bytes. 1: moved to its end; 0: not yet; -1: broken. */
static int move(struct Request* request) {
  struct Comm* comm = request->comm;
  for (;;) {
    const size_t skip = request->moved;
    const size_t body = skip < sizeof request->header ? 0 : skip - sizeof request->header;
    if (skip >= sizeof request->header && body == request->header) return 1;
    ssize_t count;
    if (comm->isSender) {
      struct iovec pieces[2];
      int pieceCount = 0;
      if (skip < sizeof request->header)
        pieces[pieceCount++] = (struct iovec){(char*)&request->header + skip, 4 - skip};
      pieces[pieceCount++] = (struct iovec){request->data + body, request->header - body};
      struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)pieceCount};
      count = sendmsg(comm->fd, &message, MSG_NOSIGNAL);
    } else if (skip < sizeof request->header) {
      count = recv(comm->fd, (char*)&request->header + skip, 4 - skip, 0);
    } else {
      count = recv(comm->fd, request->data + body, request->header - body, 0);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return 0;
    if (count <= 0) return -1;
    request->moved += (size_t)count;
    if (request->moved >= sizeof request->header && request->header > request->size) return -1;
  }
}

static ncclResult_t advance(struct Comm* comm) {
  while (comm->count > 0) {
    struct Request* request = &comm->requests[comm->first];
    const int state = move(request);
    if (state < 0) return ncclSystemError;
    if (state == 0) return ncclSuccess;
    request->isDone = 1;
    if (comm->isSender) atomic_fetch_add(&bytesOf[comm->device], request->header);
    comm->first = (comm->first + 1) % kMaxRequests;
    --comm->count;
  }
  return ncclSuccess;
}

static ncclResult_t sendMessage(void* comm, void* data, size_t size, void* memory, void** request) {
  const long number = atomic_fetch_add(&sends, 1);
  hangIfNth("hang-send", number);
  waitIfNth("late-send", number);
  if (isNth("fail-send", number)) return ncclSystemError;
  return start(comm, data, size, memory, request);
}

static ncclResult_t receiveMessage(void* comm, int count, void** data, size_t size, void** memory,
                                   void** request) {
  if (count != 1) return ncclInternalError;
  const long number = atomic_fetch_add(&receives, 1);
  hangIfNth("hang-recv", number);
  waitIfNth("late-recv", number);
  if (isNth("fail-recv", number)) return ncclSystemError;
  return start(comm, data[0], size, memory[0], request);
}

static ncclResult_t test(void* place, int* done, int* sizes) {
  struct Request* request = place;
  const long number = atomic_fetch_add(&tests, 1);
  *done = 0;
  hangIfNth("hang-test", number);
  waitIfNth("late-test", number);
  if (request->isFlush) {
    *done = 1;
    return ncclSuccess;
  }
  if (!request->isUsed) return ncclInternalError;
  if (isNth("fail-test", number)) return ncclSystemError;
  if (mustRepeat()) return ncclSuccess;
  const ncclResult_t result = request->isDone ? ncclSuccess : advance(request->comm);
  if (!request->isDone) return result; /* what breaks behind a message is no fault of its own */
  const int isReceived = !request->comm->isSender;
  const int isShort = isReceived && isNth("short", atomic_fetch_add(&arrivals, 1));
  if (sizes != NULL) sizes[0] = (int)request->header - isShort;
  *done = 1;
  request->isUsed = 0;
  if (request->isSentFromGpu) giveBuffer(request->data);
  if (request->target == NULL) return ncclSuccess;
  struct Comm* comm = request->comm;
  if (comm->arrivalCount == kMaxArrivals) return ncclInternalError; /* nobody flushes */
  comm->arrivals[comm->arrivalCount++] = (struct Arrival){.target = request->target,
                                                          .buffer = request->data,
                                                          .size = request->header,
                                                          .memory = request->memory};
  return ncclSuccess;
}

/* Not to be asked in vain: a request that is through at once. */
static ncclResult_t flush(void* place, int count, void** data, int* sizes, void** memories,
                          void** request) {
  struct Comm* comm = place;
  *request = NULL;
  if (count != 1 || comm->isSender || !isWithin(data[0], (size_t)sizes[0], memories[0]))
    return ncclInternalError;
  for (unsigned i = 0; i < comm->arrivalCount; ++i) {
    const int isWritten = writeGpu(&comm->arrivals[i]);
    giveBuffer(comm->arrivals[i].buffer);
    if (!isWritten) {
      comm->arrivalCount = 0;
      return ncclSystemError;
    }
  }
  comm->arrivalCount = 0;
  atomic_fetch_add(&gpuFlushes, 1);
  static struct Request through = {.isFlush = 1};
  *request = &through;
  return ncclSuccess;
}

#include "net_versions.h"
