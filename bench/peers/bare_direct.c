/* The forms that take values straight from the peers' buffers: read, by process_vm_readv, and
 * mapped, whose buffers lie in shared memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "bench/peers/bare.h"

enum {
  kFoldFloats = 65536,   /* read at once to be folded, by two ranks */
  kCrowdFloats = 16384,  /* and by more, from each of the others */
  kMappedFloats = 4096,  /* folded at once */
  kGatherFloats = 65536, /* gathered at once from each */
  kJointFloats = 16384,  /* two ranks: from here on both copy a half of what goes one way */
  kJointMapped = 2048    /* where that takes no system call */
};

/* Which of a caller's buffers. */
enum Side { kSend, kRecv };

struct Range {
  enum Side side;
  size_t start, count; /* floats */
};

/* How this rank reaches the others' buffers. */
static int isMapped;
static float pieces[kFewRanks][kFoldFloats];

/* ---- Reaching ------------------------------------------------------------------------------- */

/* In the peer's addresses. */
static float* remoteAddress(int peer, int leg, const struct Range* range) {
  const struct Note* note = &world.boxes[peer].ready[leg];
  return (range->side == kSend ? (float*)note->send : note->recv) + range->start;
}

/* In this process's, of buffers that are mapped. */
static float* mappedAddress(int peer, int leg, const struct Range* range) {
  const uintptr_t address = (uintptr_t)remoteAddress(peer, leg, range);
  int i;
  for (i = 0; i < kBuffers; ++i) {
    const struct SharedBuffer* buffer = &world.boxes[peer].buffers[i];
    if (address - buffer->start < buffer->bytes) {
      return world.mapped[peer][i] + (address - buffer->start) / sizeof(float);
    }
  }
  fail("mapped", "a buffer that is not shared");
  return NULL;
}

typedef ssize_t (*Transfer)(pid_t, const struct iovec*, unsigned long, const struct iovec*,
                            unsigned long, unsigned long);

static void transfer(Transfer move, int peer, float* here, float* there, size_t count) {
  char *own = (char*)here, *other = (char*)there;
  size_t left = count * sizeof(float);
  while (left > 0) {
    const struct iovec local = {own, left}, remote = {other, left};
    const ssize_t moved = move(world.boxes[peer].process, &local, 1, &remote, 1, 0);
    if (moved <= 0) fail("process_vm_readv or _writev", strerror(errno));
    own += moved;
    other += moved;
    left -= (size_t)moved;
  }
}

static void fetch(int peer, int leg, const struct Range* range, float* to) {
  if (range->count == 0) return;
  if (isMapped) {
    copyFloats(to, mappedAddress(peer, leg, range), range->count);
  } else {
    transfer(process_vm_readv, peer, to, remoteAddress(peer, leg, range), range->count);
  }
}

static void store(int peer, int leg, const struct Range* range, const float* from) {
  if (range->count == 0) return;
  if (isMapped) {
    copyFloats(mappedAddress(peer, leg, range), from, range->count);
  } else {
    transfer(process_vm_writev, peer, (float*)from, remoteAddress(peer, leg, range), range->count);
  }
}

/* to = the sum of all ranks' range, which is `own` here. */
static void foldAll(const struct Range* range, const float* own, float* to) {
  const size_t read = world.rankCount == 2 ? kFoldFloats : kCrowdFloats;
  const size_t most = isMapped ? kMappedFloats : read;
  const float* parts[kFewRanks];
  size_t done;
  int step;
  for (done = 0; done < range->count; done += most) {
    const size_t count = smaller(most, range->count - done);
    const struct Range part = {range->side, range->start + done, count};
    parts[0] = own + done;
    for (step = 1; step < world.rankCount; ++step) {
      const int peer = peerAt(step);
      if (isMapped) {
        parts[step] = mappedAddress(peer, 0, &part);
      } else {
        fetch(peer, 0, &part, pieces[step]);
        parts[step] = pieces[step];
      }
    }
    foldParts(to + done, parts, count);
  }
}

/* ---- Meeting -------------------------------------------------------------------------------- */

static void tellReady(const struct Call* call, int leg) {
  struct Note* note = &ownBox()->ready[leg];
  note->send = call->send;
  note->recv = call->recv;
  setMark(&note->mark);
}

static void awaitReady(int peer, int leg) { awaitMark(&world.boxes[peer].ready[leg].mark, peer); }

static void awaitAllReady(void) {
  int step;
  for (step = 1; step < world.rankCount; ++step) awaitReady(peerAt(step), 0);
}

/* All ranks have what they came for: buffers are their callers' again. */
static void finish(void) {
  int step;
  setMark(&ownBox()->done.epoch);
  for (step = 1; step < world.rankCount; ++step) {
    awaitMark(&world.boxes[peerAt(step)].done.epoch, peerAt(step));
  }
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static void readAllReduce(const struct Call* call) {
  const size_t start = chunkStart(call->count, world.rank);
  const struct Range own = {kSend, start, chunkCount(call->count, world.rank)};
  int step;
  awaitAllReady();
  foldAll(&own, call->send + start, call->recv + start);
  setMark(&ownBox()->middle[0].epoch);
  for (step = 1; step < world.rankCount; ++step) {
    const int peer = peerAt(step);
    const size_t there = chunkStart(call->count, peer);
    awaitMark(&world.boxes[peer].middle[0].epoch, peer);
    fetch(peer, 0, &(struct Range){kRecv, there, chunkCount(call->count, peer)},
          call->recv + there);
  }
}

/* Each rank's part of the sum goes to all outputs, piece by piece. */
static void mappedAllReduce(const struct Call* call) {
  const size_t start = chunkStart(call->count, world.rank);
  const size_t end = start + chunkCount(call->count, world.rank);
  size_t at;
  int step;
  awaitAllReady();
  if (world.rankCount == 2) {
    const struct Range from = {kSend, start, end - start}, to = {kRecv, start, end - start};
    float* const outputs[] = {call->recv + start, mappedAddress(peerAt(1), 0, &to)};
    foldToBoth(outputs, call->send + start, mappedAddress(peerAt(1), 0, &from), end - start);
    return;
  }
  for (at = start; at < end; at += kMappedFloats) {
    const size_t count = smaller(kMappedFloats, end - at);
    const float* parts[kFewRanks];
    parts[0] = call->send + at;
    for (step = 1; step < world.rankCount; ++step) {
      parts[step] = mappedAddress(peerAt(step), 0, &(struct Range){kSend, at, count});
    }
    foldKept(pieces[0], parts, count);
    copyFloats(call->recv + at, pieces[0], count);
    for (step = 1; step < world.rankCount; ++step) {
      store(peerAt(step), 0, &(struct Range){kRecv, at, count}, pieces[0]);
    }
  }
}

/* Piece by piece of all vectors, so that the peers find in this rank's caches what it has copied
 * itself. */
static void allGather(const struct Call* call) {
  size_t at;
  int step;
  for (at = 0; at < call->count; at += kGatherFloats) {
    const size_t count = smaller(kGatherFloats, call->count - at);
    copyFloats(call->recv + (size_t)world.rank * call->count + at, call->send + at, count);
    for (step = 1; step < world.rankCount; ++step) {
      const int peer = peerAt(step);
      if (at == 0) awaitReady(peer, 0);
      fetch(peer, 0, &(struct Range){kSend, at, count},
            call->recv + (size_t)peer * call->count + at);
    }
  }
}

static void allToAll(const struct Call* call) {
  const size_t own = (size_t)world.rank * call->count;
  int step;
  copyFloats(call->recv + own, call->send + own, call->count);
  for (step = 1; step < world.rankCount; ++step) {
    const int peer = peerAt(step);
    awaitReady(peer, 0);
    fetch(peer, 0, &(struct Range){kSend, own, call->count},
          call->recv + (size_t)peer * call->count);
  }
}

static void reduceScatter(const struct Call* call) {
  const size_t own = (size_t)world.rank * call->count;
  awaitAllReady();
  foldAll(&(struct Range){kSend, own, call->count}, call->send + own, call->recv);
}

/* One way, from one rank to another, which both call: `first` floats are the receiver's to fetch,
 * the rest the sender's to store. Returns when the own half is through. */
struct Way {
  int from, to, leg;
  enum Side side; /* where the sender has it; the receiver gets it in its recv */
  size_t count;
};

static size_t fetchedOf(const struct Way* way) {
  const size_t least = isMapped ? kJointMapped : kJointFloats;
  if (world.cpuCount > 0 || world.rankCount > 2 || way->count < least) return way->count;
  return chunkCount(way->count, 0);
}

static void receiveWay(const struct Call* call, const struct Way* way) {
  const size_t fetched = fetchedOf(way);
  awaitReady(way->from, way->leg);
  fetch(way->from, way->leg, &(struct Range){way->side, 0, fetched}, call->recv);
  if (fetched < way->count) awaitMark(&world.boxes[way->from].middle[way->leg].epoch, way->from);
}

static void sendWay(const struct Call* call, const struct Way* way) {
  const size_t fetched = fetchedOf(way);
  const float* from = way->side == kSend ? call->send : call->recv;
  if (fetched == way->count) return;
  awaitReady(way->to, way->leg);
  store(way->to, way->leg, &(struct Range){kRecv, fetched, way->count - fetched}, from + fetched);
  setMark(&ownBox()->middle[way->leg].epoch);
}

static void broadcast(const struct Call* call) {
  const struct Way way = {0, world.rank, 0, kRecv, call->count};
  int step;
  if (world.rank != 0) {
    receiveWay(call, &way);
    setMark(&ownBox()->done.epoch);
    return;
  }
  if (world.rankCount == 2) sendWay(call, &(struct Way){0, 1, 0, kRecv, call->count});
  for (step = 1; step < world.rankCount; ++step) {
    awaitMark(&world.boxes[step].done.epoch, step);
  }
}

/* The second leg tells the first rank that its values have been read, `done` the second. */
static void pingPong(const struct Call* call) {
  const int own = world.rank, partner = world.partner;
  if (partner < 0) return;
  if (own < partner) {
    sendWay(call, &(struct Way){own, partner, 0, kSend, call->count});
    tellReady(call, 1);
    receiveWay(call, &(struct Way){partner, own, 1, kRecv, call->count});
    setMark(&ownBox()->done.epoch);
    return;
  }
  receiveWay(call, &(struct Way){partner, own, 0, kSend, call->count});
  tellReady(call, 1);
  sendWay(call, &(struct Way){own, partner, 1, kRecv, call->count});
  awaitMark(&world.boxes[partner].done.epoch, partner);
}

static void callDirectly(const struct Call* call) {
  tellReady(call, 0);
  switch (call->collective) {
    case kAllReduce:
      if (isMapped) {
        mappedAllReduce(call);
      } else {
        readAllReduce(call);
      }
      return finish();
    case kAllGather: allGather(call); return finish();
    case kReduceScatter: reduceScatter(call); return finish();
    case kAllToAll: allToAll(call); return finish();
    case kBroadcast: return broadcast(call);
    case kPingPong: return pingPong(call);
    case kCollectiveCount: break;
  }
}

static int readHas(enum Collective collective, size_t bytes) {
  return collective != kCollectiveCount && bytes >= 4096;
}

static void readCall(const struct Call* call) { callDirectly(call); }

static int mappedHas(enum Collective collective, size_t bytes) {
  return collective != kCollectiveCount && bytes >= 1024;
}

static void mappedCall(const struct Call* call) {
  isMapped = 1;
  callDirectly(call);
}

const struct Form readForm = {"read", "bare: read", 0, readHas, readCall};
const struct Form mappedForm = {"mapped", "bare: mapped", 1, mappedHas, mappedCall};
