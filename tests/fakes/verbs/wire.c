/* How queue pairs move bytes: datagrams over Unix sockets, one socket a pair, sent and received by
 * one thread of the process, as an adapter would without asking the program. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake.h"

enum { kPacketBytes = 32768, kMaxPairs = 4096 };

struct Packet {
  enum { kBytes, kAnswer } kind;
  uint32_t packetNumber; /* the first that the sender sends: the receiver must expect it */
  /* kBytes */
  union ibv_gid target;
  uint16_t targetLid;
  uint8_t isGlobal;
  uint8_t isLast;
  uint8_t hasNumber; /* immediate data */
  uint32_t number;
  uint32_t key;
  uint64_t address;
  /* kAnswer */
  uint64_t taken; /* messages so far */
  int refusal;
};

static pthread_t thread;
static int wake = -1;
static int userCount;
static int isStopping;
static atomic_uint pairNumbers;
static char payload[kPacketBytes];

static socklen_t nameOf(uint32_t number, struct sockaddr_un* name) {
  memset(name, 0, sizeof *name);
  name->sun_family = AF_UNIX;
  const char* folder = getenv("FAKE_VERBS_FOLDER");
  if (folder != NULL) {
    snprintf(name->sun_path, sizeof name->sun_path, "%s/%u", folder, number);
    return sizeof *name;
  }
  const int length = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "fake-verbs-%u-%u",
                              (unsigned)getuid(), number);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int openSocket(struct Pair* pair) {
  struct sockaddr_un name;
  pair->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (pair->fd < 0) return errno;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const unsigned salt = (unsigned)getpid() * 2654435761u;
    const uint32_t number = (salt + atomic_fetch_add(&pairNumbers, 1) + 1) & 0xffffff;
    const socklen_t length = nameOf(number, &name);
    if (bind(pair->fd, (struct sockaddr*)&name, length) != 0) continue;
    pair->pair.qp_num = number;
    return 0;
  }
  close(pair->fd);
  return EADDRINUSE;
}

/* A peer that is not there shows when something is sent, as it would. */
void aimAtPeer(struct Pair* pair) {
  struct sockaddr_un name;
  const socklen_t length = nameOf(pair->attributes.dest_qp_num, &name);
  if (connect(pair->fd, (struct sockaddr*)&name, length) != 0) return;
}

void wakeWire(void) {
  const uint64_t one = 1;
  if (write(wake, &one, sizeof one) < 0 && errno != EAGAIN) abort();
}

/* ---- sending ---- */

/* 1: sent; 0: not now. A peer that is gone never answers. */
static int transmit(struct Pair* pair, const struct Packet* packet, const void* data,
                    size_t bytes) {
  struct iovec parts[2] = {{(void*)packet, sizeof *packet}, {(void*)data, bytes}};
  const struct msghdr message = {.msg_iov = parts, .msg_iovlen = bytes == 0 ? 1 : 2};
  if (sendmsg(pair->fd, &message, MSG_NOSIGNAL) >= 0) return 1;
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
    if (packet->kind == kBytes) failPair(pair, IBV_WC_RETRY_EXC_ERR);
    return packet->kind == kAnswer;
  }
  pair->isBlocked = 1;
  return 0;
}

static int sendAnswer(struct Pair* pair) {
  if (pair->told == pair->taken && pair->refusal <= 0) return 1;
  const struct Packet packet = {.kind = kAnswer,
                                .packetNumber = pair->attributes.sq_psn,
                                .taken = pair->taken,
                                .refusal = pair->refusal};
  if (!transmit(pair, &packet, NULL, 0)) return 0;
  pair->told = pair->taken;
  if (pair->refusal > 0) pair->refusal = -1; /* said */
  return 1;
}

static const char* sourceOf(struct Pair* pair, const struct Send* send) {
  if ((send->request.send_flags & IBV_SEND_INLINE) != 0) return send->inlineData;
  if (send->place.length == 0) return "";
  return findRegion(pair->pair.pd, send->place.lkey, send->place.addr, send->place.length) == NULL
             ? NULL
             : (const char*)(uintptr_t)send->place.addr;
}

/* Of a pair that is connected with itself: its adapter reads its own host's memory. */
static int readBack(struct Pair* pair, const struct Send* send) {
  const uint32_t bytes = send->place.length;
  struct Region* region = findRegion(pair->pair.pd, send->request.wr.rdma.rkey,
                                     send->request.wr.rdma.remote_addr, bytes);
  if (pair->attributes.dest_qp_num != pair->pair.qp_num || region == NULL ||
      (region->access & IBV_ACCESS_REMOTE_READ) == 0) {
    failPair(pair, IBV_WC_REM_ACCESS_ERR);
    return 1;
  }
  if (findRegion(pair->pair.pd, send->place.lkey, send->place.addr, bytes) == NULL) {
    failPair(pair, IBV_WC_LOC_PROT_ERR);
    return 1;
  }
  showWrites(region);
  completeSends(pair, ++pair->unsent);
  return 1;
}

/* One packet of the oldest send that is not out. */
static int sendPacket(struct Pair* pair) {
  struct Send* send = &pair->sends[pair->unsent % pair->cap.max_send_wr];
  if (send->request.opcode == IBV_WR_RDMA_READ && send->forcedStatus < 0)
    return readBack(pair, send);
  const char* source = sourceOf(pair, send);
  if (send->forcedStatus >= 0 || source == NULL) {
    /* What was sent before it stays good: wait for its answers. */
    if (pair->firstSend != pair->unsent) return 0;
    failPair(pair, source == NULL ? IBV_WC_LOC_PROT_ERR : send->forcedStatus);
    return 1;
  }
  const uint32_t left = send->place.length - send->sentBytes;
  const uint32_t bytes = left < kPacketBytes ? left : kPacketBytes;
  const struct ibv_ah_attr* address = &pair->attributes.ah_attr;
  const struct Packet packet = {.kind = kBytes,
                                .packetNumber = pair->attributes.sq_psn,
                                .target = address->grh.dgid,
                                .targetLid = address->dlid,
                                .isGlobal = address->is_global,
                                .isLast = bytes == left,
                                .hasNumber = send->request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                                .number = send->request.imm_data,
                                .key = send->request.wr.rdma.rkey,
                                .address = send->request.wr.rdma.remote_addr + send->sentBytes};
  if (!transmit(pair, &packet, source + send->sentBytes, bytes)) return 0;
  if (pair->pair.state != IBV_QPS_RTS) return 1;
  send->sentBytes += bytes;
  if (packet.isLast) ++pair->unsent;
  return 1;
}

static void sendAll(struct Pair* pair) {
  pair->isBlocked = 0;
  if (!sendAnswer(pair)) return;
  while (pair->pair.state == IBV_QPS_RTS && pair->unsent < pair->endSend && sendPacket(pair)) {
  }
}

/* ---- receiving ---- */

static int isForUs(const struct Pair* pair, const struct Packet* packet) {
  const struct Port* port = portOf(contextOf(pair->pair.context), pair->attributes.port_num);
  if (packet->packetNumber != pair->attributes.rq_psn) return 0;
  if (packet->kind == kAnswer) return 1;
  if (!packet->isGlobal) return packet->targetLid == port->attributes.lid;
  for (int i = 0; i < kMaxGids; ++i) {
    if (port->gids[i].kind >= 0 &&
        memcmp(&port->gids[i].gid, &packet->target, sizeof packet->target) == 0)
      return 1;
  }
  return 0;
}

/* A line as adapters write it: words in their order, for who polls the last one. */
static void writeMemory(char* target, const char* source, size_t bytes) {
  if (bytes > 64 || bytes % 8 != 0 || (uintptr_t)target % 8 != 0) {
    memcpy(target, source, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    memcpy(&word, source + i, sizeof word);
    __atomic_store_n((uint64_t*)(target + i), word, __ATOMIC_RELEASE);
  }
}

static void takeBytes(struct Pair* pair, const struct Packet* packet, size_t bytes) {
  if (bytes != 0) {
    struct Region* region = findRegion(pair->pair.pd, packet->key, packet->address, bytes);
    if (region == NULL || region->region.rkey != packet->key ||
        (region->access & IBV_ACCESS_REMOTE_WRITE) == 0) {
      pair->refusal = IBV_WC_REM_ACCESS_ERR;
      return;
    }
    if (region->mapped != NULL) {
      writeLate(region, packet->address, payload, bytes);
    } else {
      writeMemory((char*)(uintptr_t)packet->address, payload, bytes);
    }
  }
  if (!packet->isLast) return;
  if (packet->hasNumber) {
    if (pair->firstReceive == pair->endReceive) {
      pair->refusal = IBV_WC_RNR_RETRY_EXC_ERR;
      return;
    }
    const uint64_t id = pair->receives[pair->firstReceive++ % pair->cap.max_recv_wr];
    complete(pair->pair.recv_cq, &(struct ibv_wc){.wr_id = id,
                                                  .status = IBV_WC_SUCCESS,
                                                  .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                  .byte_len = (uint32_t)bytes,
                                                  .imm_data = packet->number,
                                                  .wc_flags = IBV_WC_WITH_IMM,
                                                  .qp_num = pair->pair.qp_num});
  }
  ++pair->taken;
}

static int isUp(const struct Pair* pair) {
  const struct Port* port = portOf(contextOf(pair->pair.context), pair->attributes.port_num);
  return port != NULL && port->attributes.state == IBV_PORT_ACTIVE;
}

static void receiveAll(struct Pair* pair) {
  struct Packet packet;
  struct iovec parts[2] = {{&packet, sizeof packet}, {payload, sizeof payload}};
  for (;;) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const ssize_t bytes = recvmsg(pair->fd, &message, MSG_DONTWAIT);
    if (bytes < (ssize_t)sizeof packet) return;
    if (pair->pair.state != IBV_QPS_RTR && pair->pair.state != IBV_QPS_RTS) continue;
    if (pair->refusal != 0) continue;
    if (!isForUs(pair, &packet)) {
      if (packet.kind == kBytes) pair->refusal = IBV_WC_RETRY_EXC_ERR; /* nobody takes it */
      continue;
    }
    if (packet.kind == kBytes) {
      takeBytes(pair, &packet, (size_t)bytes - sizeof packet);
    } else {
      completeSends(pair, packet.taken);
      if (packet.refusal > 0) failPair(pair, packet.refusal);
    }
  }
}

/* ---- the thread ---- */

static int isCableOut(void) {
  const char* cable = getenv("FAKE_VERBS_CABLE");
  return cable != NULL && access(cable, F_OK) != 0;
}

/* What arrives at a cable's end that is in no port. */
static void loseAll(const struct Pair* pair) {
  while (recv(pair->fd, payload, sizeof payload, MSG_DONTWAIT) >= 0) {
  }
}

static void* run(void* unused) {
  static struct pollfd places[kMaxPairs + 1];
  (void)unused;
  for (;;) {
    nfds_t count = 1;
    places[0] = (struct pollfd){.fd = wake, .events = POLLIN};
    pthread_mutex_lock(&theLock);
    for (struct Pair* pair = thePairs; pair != NULL && count <= kMaxPairs; pair = pair->next) {
      const short events = pair->isBlocked ? POLLIN | POLLOUT : POLLIN;
      places[count++] = (struct pollfd){.fd = pair->fd, .events = events};
    }
    const int stops = isStopping;
    pthread_mutex_unlock(&theLock);
    if (stops) return NULL;
    poll(places, count, 1000);
    uint64_t calls = 0;
    if (read(wake, &calls, sizeof calls) < 0 && errno != EAGAIN) abort();
    const int isCut = isCableOut();
    pthread_mutex_lock(&theLock);
    for (struct Pair* pair = thePairs; pair != NULL; pair = pair->next) {
      if (isCut) loseAll(pair);
      if (isCut || !isUp(pair)) continue;
      receiveAll(pair);
      sendAll(pair);
    }
    pthread_mutex_unlock(&theLock);
  }
}

int useWire(void) {
  pthread_mutex_lock(&theLock);
  int error = 0;
  if (userCount++ == 0) {
    isStopping = 0;
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = wake < 0 ? errno : pthread_create(&thread, NULL, run, NULL);
  }
  pthread_mutex_unlock(&theLock);
  return error;
}

void leaveWire(void) {
  pthread_mutex_lock(&theLock);
  const int isLast = --userCount == 0;
  if (isLast) isStopping = 1;
  pthread_mutex_unlock(&theLock);
  if (!isLast) return;
  wakeWire();
  pthread_join(thread, NULL);
  close(wake);
}
