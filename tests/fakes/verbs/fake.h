/* A libibverbs for tests, with the real one's binary interface: adapters as a file describes them,
 * queue pairs that move bytes between processes over Unix sockets, completions, events and failures
 * on demand. It is strict where adapters are merely unfriendly: a write without a posted receive,
 * to memory that was not registered, or to the wrong address fails.
 *
 * FAKE_VERBS_DEVICES names the description, line by line; ports belong to the device before them,
 * GIDs to the port:
 *
 *     device NAME SYSFS-FOLDER MOST-INLINE-BYTES [iwarp]
 *     port NUMBER active|down ib|eth SPEED WIDTH LID     (the standard's numbers)
 *     gid INDEX ib|v1|v2 ADDRESS
 *
 * Processes in several network namespaces meet where FAKE_VERBS_FOLDER names a folder for the
 * sockets. FAKE_VERBS_CABLE names a file that is this process's cable: once it is gone nothing goes
 * out and nothing comes in, and nobody is told.
 *
 * FAKE_VERBS says what goes wrong: "fail CALL" or "fail CALL N" (its Nth call), CALL being fork,
 * list, open, events (it has none), query, port, pd, cq, qp, rtr, rts, reg, limit (of a
 * registration: not for want of memory), send, recv or poll; "hang CALL" (it never
 * returns; CALL being one of those before send, or load, the library's constructor); "complete N
 * STATUS" (the Nth send of the process ends so); "without dmabuf" (no descriptors of memory are
 * taken), "fail dmabuf" (this one is not); "event N KIND" (at the Nth send; KIND: port-error, flap,
 * device-fatal, qp-fatal, cq-error, gid-change, other; gone: there are no more events to be had);
 * "lie N" (the Nth send's number, or the last word of what has none, is not what was asked for);
 * "twice N" (the Nth send completes twice). "old": ports are asked as libraries before version 1.9
 * did. Its counts begin anew when it changes. */
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
  kMaxDevices = 8,
  kMaxPorts = 2,
  kMaxGids = 8,
  kMaxEvents = 32,
  kInlineBytes = 64,
};

struct Gid {
  union ibv_gid gid;
  int kind; /* -1: a hole in the table */
};

struct Port {
  struct ibv_port_attr attributes;
  struct Gid gids[kMaxGids];
};

struct Device {
  struct ibv_device device; /* first: what the library knows of it */
  uint32_t mostInline;
  int userCount; /* the list, and who opened it */
  int portCount;
  struct Port ports[kMaxPorts];
};

struct Context {
  struct verbs_context extended;
  struct Device* device;
  struct ibv_async_event events[kMaxEvents]; /* that nobody has taken yet */
  int eventCount;
  int isGone; /* no more are to be had */
};

/* Written to a GPU's memory, and not to be seen there before somebody reads back. */
struct Late {
  char* target;
  char* bytes;
  size_t count;
  struct Late* next;
};

struct Region {
  struct ibv_mr region; /* first */
  int access;
  char* mapped; /* of a descriptor: where it is mapped */
  struct Late *firstLate, *lastLate;
  struct Region* next;
};

struct Queue {
  struct ibv_cq queue; /* first */
  unsigned begin, count, size;
  unsigned openEvents; /* taken, not acknowledged */
  struct ibv_wc* entries;
};

struct Send {
  struct ibv_send_wr request;
  struct ibv_sge place;
  char inlineData[kInlineBytes];
  uint32_t sentBytes;
  int forcedStatus; /* -1: none */
  int isTwice;      /* completes so */
};

struct Pair {
  struct ibv_qp pair; /* first */
  struct ibv_qp_cap cap;
  struct ibv_qp_attr attributes;
  int fd;
  unsigned openEvents;
  /* Rings, by ever growing numbers. */
  struct Send* sends;
  uint64_t firstSend, unsent, endSend;
  uint64_t* receives;
  uint64_t firstReceive, endReceive;
  /* Of what the peer sends: messages taken, those that it has been told of. */
  uint64_t taken, told;
  int refusal; /* the status that ends the peer's send after them; 0: none */
  int isBlocked;
  struct Pair* next;
};

/* What all share. The lock guards everything of every object. */
extern pthread_mutex_t theLock;
extern pthread_cond_t eventTaken;
extern struct Pair* thePairs;
extern struct Region* theRegions;

/* devices.c */
struct Context* contextOf(struct ibv_context* context);
struct Port* portOf(struct Context* context, int number);
int isOrdered(const char* call);    /* whether this call is to fail */
int failsOrHangs(const char* call); /* the same; does not return where it is to hang */
int isOrderedAt(const char* what, uint64_t send); /* "what N" */
int orderedStatus(uint64_t send);                 /* -1: none */
void raiseOrderedEvent(struct Pair* pair, uint64_t send);
void dropEvents(struct Context* context, const void* element);

/* wire.c: one thread moves what is to be moved. */
int openSocket(struct Pair* pair);
void aimAtPeer(struct Pair* pair);
void wakeWire(void);
int useWire(void); /* an errno */
void leaveWire(void);

/* queues.c */
void complete(struct ibv_cq* queue, const struct ibv_wc* entry);
void failPair(struct Pair* pair, int status);
void completeSends(struct Pair* pair, uint64_t end);
struct Region* findRegion(const struct ibv_pd* domain, uint32_t key, uint64_t address,
                          uint64_t bytes);
void showWrites(struct Region* region);
void writeLate(struct Region* region, uint64_t address, const char* bytes, size_t count);
int pollQueue(struct ibv_cq* cq, int most, struct ibv_wc* entries);
int postSend(struct ibv_qp* qp, struct ibv_send_wr* requests, struct ibv_send_wr** refused);
int postReceive(struct ibv_qp* qp, struct ibv_recv_wr* requests, struct ibv_recv_wr** refused);
