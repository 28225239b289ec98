/* What the forms of the bare transfer share: a box of shared memory a rank, marks, waiting, copying
 * and folding. No call is checked, planned or matched, and nothing notices a dead rank: this is
 * what a collective takes when nothing but the transfer is done.
 *
 * All ranks make the same calls in the same order, so a call has a number, its *epoch*, that all
 * know. It is the mark of everything which the call writes, and no other call's. Between calls of
 * different shape the harness has a barrier, on which slots that change their places count. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bench/peers/harness.h"

enum {
  kLineBytes = 64,
  kFewRanks = 8,      /* no more than so many */
  kLineFloats = 15,   /* beside the mark */
  kMailFloats = 4096, /* of the longest message by mail */
  kMailLines = 4096,
  kPieceFloats = 2048,
  kRegions = 2,
  kBounceFloats = 1 << 18, /* of the longest message that bounces; two fit, pieces rounded up */
  kRegionFloats = 2 * (kBounceFloats + kFewRanks * kPieceFloats),
  kRegionMarks = 1024,
  kLegs = 2,
  kBuffers = 2
};

/* One store fills it, so whoever sees the mark sees the values: mail. */
struct Line {
  _Alignas(kLineBytes) float values[kLineFloats];
  _Atomic uint32_t mark;
};

struct Mark {
  _Alignas(kLineBytes) _Atomic uint32_t epoch;
};

/* Where the caller's buffers lie, in its own addresses. */
struct Note {
  _Alignas(kLineBytes) const float* send;
  float* recv;
  _Atomic uint32_t mark;
};

struct SharedBuffer {
  uintptr_t start;
  size_t bytes;
};

/* Slots for pieces, each with its mark in a line of its own. */
struct Region {
  struct Mark marks[kRegionMarks];
  _Alignas(4096) float floats[kRegionFloats];
};

/* Written by its rank alone, read by all. A mark is stored with release and awaited with acquire;
 * it stays until its rank's next call with the same slot, which cannot come before all have read
 * it: in every collective but broadcast each rank hears from each, and in a broadcast the root
 * waits for `consumed`. */
struct Box {
  struct Note ready[kLegs];
  struct Mark middle[kLegs];
  struct Mark done;
  struct Mark consumed; /* the last epoch of a broadcast that this rank has told the root of */
  _Alignas(kLineBytes) int32_t process;
  struct SharedBuffer buffers[kBuffers];
  struct Line mail[kMailLines];
  struct Region regions[kRegions];
};

struct World {
  int rank;
  int rankCount;
  int partner;
  int cpuCount; /* 0: a core for each rank */
  int order[kFewRanks];
  int isLong; /* the call: its vectors do not stay in the caches */
  uint32_t epoch;
  uint32_t shapeEpoch; /* of the last call before this shape's first */
  struct Box* boxes;
  float* mapped[kFewRanks][kBuffers]; /* the ranks' buffers in this process, or NULL */
};

/* One rank of one job. */
extern struct World world;

struct Form {
  const char* name;
  const char* title;
  int isShared; /* buffers that the other ranks map */
  int (*has)(enum Collective collective, size_t bytes);
  void (*call)(const struct Call* call);
};

extern const struct Form mailForm, demoteForm, bounceForm, readForm, mappedForm;

static inline struct Box* ownBox(void) { return &world.boxes[world.rank]; }

/* The peers in turn, 1 <= step < rankCount: first those on the own core, which need it before
 * anything else can go on, then the others, from the next rank on. */
static inline int peerAt(int step) { return world.order[step]; }

static inline void setMark(_Atomic uint32_t* mark) {
  atomic_store_explicit(mark, world.epoch, memory_order_release);
}

/* One turn of waiting for `peer`, after `looks` before it: with a core for each rank by looking
 * again, otherwise by giving the core away, at once if the peer may need it. */
void waitForPeer(int peer, long* looks);
/* Until `peer` has marked it with this call's epoch. */
static inline void awaitMark(const _Atomic uint32_t* mark, int peer) {
  long looks = 0;
  while (atomic_load_explicit(mark, memory_order_acquire) != world.epoch) {
    waitForPeer(peer, &looks);
  }
}

/* Slots of a broadcast are `depth` calls deep, an even number. The root, before it writes: until
 * all have left the slot. The others, after they have read: tells the root, every half depth. */
void awaitConsumers(uint32_t depth);
void tellRoot(uint32_t depth);

/* Rank `index`'s part of a vector that the ranks share out: whole lines where it can be. */
size_t chunkStart(size_t count, int index);
static inline size_t chunkCount(size_t count, int index) {
  return chunkStart(count, index + 1) - chunkStart(count, index);
}

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline void keepFloats(float* to, const float* from, size_t count) {
  memcpy(to, from, count * sizeof(float));
}
/* The same for what nobody reads soon: past the caches where the call is long. */
void copyFloats(float* to, const float* from, size_t count);
/* to = the sum of as many parts as there are ranks, past the caches where the call is long. */
void foldParts(float* to, const float* const* parts, size_t count);
/* The same, and the sum is read again soon. */
void foldKept(float* to, const float* const* parts, size_t count);
/* foldParts for two ranks and two outputs. */
void foldToBoth(float* const outputs[2], const float* a, const float* b, size_t count);
