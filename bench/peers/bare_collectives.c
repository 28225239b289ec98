/* The bare transfer in one of its forms, which the argument names: what the libraries are measured
 * against that do more. bare.h says what it leaves out. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "bench/peers/bare.h"

enum { kPage = 4096, kPathBytes = 512, kSpins = 1 << 20, kCrowdedSpins = 20 };
enum {
  kBlock = 256,             /* floats folded at once: stays in the L1 cache */
  kLongBytes = 48 << 20,    /* of all ranks' vectors: longer calls do not stay in the caches */
  kLongSumBytes = 24 << 20, /* all-reduce */
};

struct World world;
static const struct Form* form;
static const char* directory;
static struct Call shape;

/* ---- Waiting -------------------------------------------------------------------------------- */

/* On the same core. */
static int isNeighbour(int peer) {
  return world.cpuCount > 0 && peer % world.cpuCount == world.rank % world.cpuCount;
}

static void orderPeers(void) {
  int step, place = 1, areOthers;
  for (areOthers = 0; areOthers < 2; ++areOthers) {
    for (step = 1; step < world.rankCount; ++step) {
      const int peer = (world.rank + step) % world.rankCount;
      if (isNeighbour(peer) != areOthers) world.order[place++] = peer;
    }
  }
}

void waitForPeer(int peer, long* looks) {
  const long most = world.cpuCount > 0 ? kCrowdedSpins : kSpins;
  if (isNeighbour(peer) || ++*looks > most) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  if (world.cpuCount > 0) __builtin_ia32_pause(); /* of 40 ns here: too long with a core each */
#endif
}

void awaitConsumers(uint32_t depth) {
  const uint32_t half = depth / 2, wanted = world.epoch - 1 - half;
  int peer;
  if (world.epoch % half != 1 % half || (int32_t)(wanted - world.shapeEpoch) <= 0) return;
  for (peer = 1; peer < world.rankCount; ++peer) {
    const _Atomic uint32_t* consumed = &world.boxes[peer].consumed.epoch;
    long looks = 0;
    while ((int32_t)(atomic_load_explicit(consumed, memory_order_acquire) - wanted) < 0) {
      waitForPeer(peer, &looks);
    }
  }
}

void tellRoot(uint32_t depth) {
  if (world.epoch % (depth / 2) == 0) setMark(&ownBox()->consumed.epoch);
}

/* ---- Vectors -------------------------------------------------------------------------------- */

size_t chunkStart(size_t count, int index) {
  const size_t ranks = (size_t)world.rankCount, lines = kLineBytes / sizeof(float);
  const size_t share = ((count + ranks - 1) / ranks + lines - 1) / lines * lines;
  return smaller(count, share * (size_t)index);
}

/* Past the caches; endStream() before anyone is told of it. */
static void streamFloats(float* to, const float* from, size_t count) {
#ifdef __AVX512F__
  const size_t line = kLineBytes / sizeof(float);
  for (; (uintptr_t)to % kLineBytes == 0 && count >= line; count -= line) {
    _mm512_stream_ps(to, _mm512_loadu_ps(from));
    to += line;
    from += line;
  }
#endif
  keepFloats(to, from, count);
}

static void endStream(void) {
#ifdef __AVX512F__
  _mm_sfence();
#endif
}

void copyFloats(float* to, const float* from, size_t count) {
  if (!world.isLong) {
    keepFloats(to, from, count);
    return;
  }
  streamFloats(to, from, count);
  endStream();
}

static void foldTwo(float* to, const float* a, const float* b, size_t count) {
  size_t i;
#pragma GCC ivdep
  for (i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

/* Of no more than kBlock floats from `start` on. */
static void foldBlock(float* sums, const float* const* parts, size_t start, size_t count) {
  size_t i;
  int part;
  foldTwo(sums, parts[0] + start, parts[1] + start, count);
  for (part = 2; part < world.rankCount; ++part) {
#pragma GCC ivdep
    for (i = 0; i < count; ++i) sums[i] += parts[part][start + i];
  }
}

void foldKept(float* to, const float* const* parts, size_t count) {
  size_t start;
  for (start = 0; start < count; start += kBlock) {
    foldBlock(to + start, parts, start, smaller(kBlock, count - start));
  }
}

void foldParts(float* to, const float* const* parts, size_t count) {
  float sums[kBlock];
  size_t start;
  if (!world.isLong) {
    foldKept(to, parts, count);
    return;
  }
  for (start = 0; start < count; start += kBlock) {
    const size_t block = smaller(kBlock, count - start);
    foldBlock(sums, parts, start, block);
    streamFloats(to + start, sums, block);
  }
  endStream();
}

void foldToBoth(float* const outputs[2], const float* a, const float* b, size_t count) {
  float sums[kBlock];
  size_t start;
  for (start = 0; start < count; start += kBlock) {
    const size_t block = smaller(kBlock, count - start);
    foldTwo(sums, a + start, b + start, block);
    if (world.isLong) {
      streamFloats(outputs[0] + start, sums, block);
      streamFloats(outputs[1] + start, sums, block);
    } else {
      keepFloats(outputs[0] + start, sums, block);
      keepFloats(outputs[1] + start, sums, block);
    }
  }
  if (world.isLong) endStream();
}

/* ---- Memory that all ranks map -------------------------------------------------------------- */

static void* mapFile(const char* name, int rank, int index, size_t bytes) {
  char path[kPathBytes];
  void* memory;
  int file;
  snprintf(path, sizeof path, "%s/%s-%d-%d", directory, name, rank, index);
  file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0) fail(path, strerror(errno));
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) fail(path, strerror(errno));
  close(file);
  return memory;
}

static int bufferIndex(const float* start) {
  int i;
  for (i = 0; i < kBuffers; ++i) {
    if (ownBox()->buffers[i].start == (uintptr_t)start) return i;
  }
  fail("buffers", "more than were foreseen");
  return -1;
}

static float* allocateShared(size_t bytes) {
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  const int index = bufferIndex(NULL);
  float* own;
  int rank;
  for (rank = 0; rank < world.rankCount; ++rank) {
    world.mapped[rank][index] = mapFile("buffer", rank, index, whole);
  }
  own = world.mapped[world.rank][index];
  ownBox()->buffers[index] = (struct SharedBuffer){(uintptr_t)own, whole};
  meet();
  return own;
}

static void freeShared(const float* start) {
  char path[kPathBytes];
  const int index = bufferIndex(start);
  const size_t bytes = ownBox()->buffers[index].bytes;
  int rank;
  meet();
  for (rank = 0; rank < world.rankCount; ++rank) munmap(world.mapped[rank][index], bytes);
  ownBox()->buffers[index] = (struct SharedBuffer){0, 0};
  snprintf(path, sizeof path, "%s/buffer-%d-%d", directory, world.rank, index);
  unlink(path);
  meet(); /* before anyone makes the next */
}

/* ---- The harness's peer --------------------------------------------------------------------- */

/* With fewer cores than ranks each rank is kept on one, so that it knows whom it shares it with. */
static void takeTurns(void) {
  world.cpuCount = cpusUsable();
  stayOn(world.rank % world.cpuCount, 1);
}

void peerOpen(const struct Place* place, int argumentCount, char** arguments) {
  const struct Form* forms[] = {&mailForm, &demoteForm, &bounceForm, &readForm, &mappedForm};
  size_t i;
  for (i = 0; i < sizeof forms / sizeof *forms; ++i) {
    if (argumentCount > 0 && strcmp(arguments[0], forms[i]->name) == 0) form = forms[i];
  }
  if (form == NULL) fail("arguments", "none of mail, demote, bounce, read, mapped");
  if (place->rankCount > kFewRanks) fail("ranks", "more than 8");
  directory = place->directory;
  world.rank = place->rank;
  world.rankCount = place->rankCount;
  world.partner = partnerOf(place->rank, place->rankCount);
  if (!place->hasOwnCores) takeTurns();
  orderPeers();
  world.boxes = mapFile("boxes", 0, 0, sizeof(struct Box) * (size_t)place->rankCount);
  ownBox()->process = (int32_t)getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* Yama would refuse process_vm_readv */
  meet();
}

const char* peerDescription(void) { return form->title; }

int peerHas(enum Collective collective, size_t bytes) { return form->has(collective, bytes); }

float* peerAllocate(size_t bytes) {
  void* memory = NULL;
  if (form->isShared) return allocateShared(bytes);
  if (posix_memalign(&memory, kPage, bytes) != 0) fail("posix_memalign", "no memory");
  return memory;
}

void peerFree(float* memory) {
  if (form->isShared) {
    freeShared(memory);
  } else {
    free(memory);
  }
}

/* Whether stores past the caches win: found by trying, 2, 4 and 8 ranks on 2 cores of an Intel Xeon
 * VM, family 6, model 207, 2026-11-23. */
static int isCallLong(const struct Call* call) {
  const size_t least = call->collective == kAllReduce ? kLongSumBytes : kLongBytes;
  const size_t ranks = (size_t)world.rankCount;
  const size_t vectors = isInPieces(call->collective) ? ranks * ranks : ranks;
  return call->count * sizeof(float) * vectors >= least;
}

void peerCall(const struct Call* call) {
  if (call->collective != shape.collective || call->count != shape.count) {
    shape = *call;
    world.shapeEpoch = world.epoch;
    world.isLong = isCallLong(call);
  }
  ++world.epoch;
  form->call(call);
}

void peerClose(void) {}
