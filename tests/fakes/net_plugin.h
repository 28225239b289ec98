/* What the network and the collective-network plug-in for tests share: what both interfaces have
 * alike in the version FAKE_VERSION, adapters named FAKE_ADAPTER, and what goes wrong, by the
 * variable of the environment named FAKE_ORDERS. Defined by whoever includes this, once. */
#pragma once

#include <nccl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Logger)(int level, unsigned long flags, const char* file, int line,
                       const char* format, ...);

enum { kMaxRequests = 32, kMaxDevices = 8, kHostMemory = 1, kGpuMemory = 2, kDmaBuffers = 4 };

/* What whoever includes this takes; before it, to say otherwise. */
#ifndef FAKE_MEMORY_KINDS
#define FAKE_MEMORY_KINDS kHostMemory
#endif

static Logger say;

/* ---- what goes wrong ---- */

static inline int isOrdered(const char* what) {
  const char* order = getenv(FAKE_ORDERS);
  return order != NULL && strcmp(order, what) == 0;
}

/* "hang-init": it never returns. */
static inline void hangIfOrdered(const char* what) {
  while (isOrdered(what)) sleep(1);
}

/* "fail-send 3", the first being 0. */
static inline int isNth(const char* what, long number) {
  const char* order = getenv(FAKE_ORDERS);
  const size_t length = strlen(what);
  if (order == NULL || strncmp(order, what, length) != 0 || order[length] != ' ') return 0;
  return atol(order + length + 1) == number;
}

/* "hang-send 3": it never returns. */
static inline void hangIfNth(const char* what, long number) {
  if (isNth(what, number)) {
    for (;;) sleep(1);
  }
}

/* "late-test 3": it takes a second. */
static inline void waitIfNth(const char* what, long number) {
  if (isNth(what, number)) sleep(1);
}

/* In no rhythm that the calls could fall in with. */
static inline int mustRepeat(void) {
  static atomic_uint calls;
  return isOrdered("slow") && (atomic_fetch_add(&calls, 1) * 2654435761U >> 20) % 2 == 0;
}

/* ---- adapters ---- */

struct Properties {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
#if FAKE_VERSION >= 8
  int regIsGlobal;
#endif
#if FAKE_VERSION >= 9
  int forceFlush;
#endif
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
#if FAKE_VERSION >= 7
  int netDeviceType;
  int netDeviceVersion;
#endif
#if FAKE_VERSION >= 9
  struct {
    int count;
    int devices[4];
  } virtualDevice;
  size_t maxP2pBytes;
  size_t maxCollBytes;
#endif
#if FAKE_VERSION >= 11
  size_t maxMultiRequestSize;
#endif
};

static inline int deviceCount(void) {
  if (isOrdered("no-devices")) return 0;
  const char* text = getenv(FAKE_ORDERS "_DEVICES");
  const int count = text == NULL ? 2 : atoi(text);
  return count < 1 ? 1 : count > kMaxDevices ? kMaxDevices : count;
}

static inline ncclResult_t devices(int* count) {
  hangIfOrdered("hang-devices");
  *count = deviceCount();
  return ncclSuccess;
}

static inline ncclResult_t describe(int device, struct Properties* properties) {
  static char name[kMaxDevices][16];
  snprintf(name[device], sizeof name[device], FAKE_ADAPTER "%d", device);
  memset(properties, 0, sizeof *properties);
  properties->name = name[device];
  properties->guid = (uint64_t)device;
  properties->ptrSupport = FAKE_MEMORY_KINDS;
  properties->speed = 10000;
  properties->maxComms = 1024;
  properties->maxRecvs = 1;
#if FAKE_VERSION >= 9
  properties->maxP2pBytes = 1 << 20;
  properties->maxCollBytes = isOrdered("short") ? 1000 : 1 << 20;
#endif
  return ncclSuccess;
}

/* ---- registered memory ---- */

#if FAKE_VERSION >= 8
typedef size_t RegisterSize;
#else
typedef int RegisterSize;
#endif

struct Memory {
  char* data;
  size_t size;
  int isOnGpu;
  char* mapped; /* the same memory, where a descriptor of it could be mapped */
};

static inline ncclResult_t enroll(void* owner, void* data, RegisterSize size, int kind,
                                  void** made) {
  static atomic_long calls;
  hangIfOrdered("hang-register");
  hangIfNth("hang-register", atomic_fetch_add(&calls, 1));
  if (owner == NULL || data == NULL || size <= 0 || kind != kHostMemory) return ncclInvalidArgument;
  struct Memory* memory = malloc(sizeof *memory);
  if (memory == NULL) return ncclSystemError;
  *memory = (struct Memory){.data = data, .size = (size_t)size};
  *made = memory;
  return ncclSuccess;
}

static inline ncclResult_t release(void* owner, void* memory) {
  hangIfOrdered("hang-release");
  (void)owner;
  free(memory);
  return ncclSuccess;
}

static inline int isWithin(const void* data, size_t size, const struct Memory* memory) {
  const char* bytes = data;
  const int isInside =
      memory != NULL && bytes >= memory->data && bytes + size <= memory->data + memory->size;
  if (!isInside) say(2, 0x10, __FILE__, __LINE__, "%zu bytes are not in registered memory", size);
  return isInside;
}
