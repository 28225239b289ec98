/* The forms that copy through slots of shared memory: mail, whose lines carry their own marks;
 * demote, the same with the lines handed to the cache that the cores share; and bounce, whose
 * pieces of 8 KB have marks of their own. A rank posts once what several read. */
#define _GNU_SOURCE
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "bench/peers/bare.h"

/* ---- Mail ----------------------------------------------------------------------------------- */

enum {
  kMailDepth = 2,
  kMostDepth = 64,
  kFewLines = 8, /* fetching so few back costs more than it saves */
  kFetchedLines = 128,
  kDemotedFloats = 256 /* of longer messages handing over loses */
};

static int isDemoting;

static size_t linesOf(size_t count) { return (count + kLineFloats - 1) / kLineFloats; }

#ifdef __AVX512F__
static inline __mmask16 maskOf(size_t count) {
  return (__mmask16)(count >= kLineFloats ? 0x7FFF : (1u << count) - 1);
}

static inline void putLine(struct Line* line, const float* from, size_t count) {
  const __m512i values = _mm512_maskz_loadu_epi32(maskOf(count), from);
  const __m512i mark = _mm512_set1_epi32((int)world.epoch);
  _mm512_store_si512(line, _mm512_mask_blend_epi32(0x8000, values, mark));
}

static inline void takeLine(float* to, const struct Line* line, const float* with, size_t count) {
  const __mmask16 mask = maskOf(count);
  __m512 values = _mm512_load_ps(line->values);
  if (with != NULL) values = _mm512_add_ps(values, _mm512_maskz_loadu_ps(mask, with));
  _mm512_mask_storeu_ps(to, mask, values);
}
#else
static inline void putLine(struct Line* line, const float* from, size_t count) {
  memcpy(line->values, from, smaller(count, kLineFloats) * sizeof(float));
  setMark(&line->mark);
}

static inline void takeLine(float* to, const struct Line* line, const float* with, size_t count) {
  const size_t taken = smaller(count, kLineFloats);
  size_t i;
  for (i = 0; i < taken; ++i) to[i] = line->values[i] + (with != NULL ? with[i] : 0);
}
#endif

static inline void demoteLine(struct Line* line) {
#ifdef __CLDEMOTE__
  _cldemote(line);
#else
  (void)line;
#endif
}

static void putLines(struct Line* lines, const float* from, size_t count) {
  struct Line* line = lines;
  size_t done;
  for (done = 0; done < count; done += kLineFloats) putLine(line++, from + done, count - done);
  while (isDemoting && line > lines) demoteLine(--line);
}

/* What a peer has put, with `with` added unless that is NULL. */
struct Letter {
  const struct Line* lines;
  int peer;
  float* to;
  const float* with;
  size_t count;
};

static void takeLetter(const struct Letter* letter) {
  const struct Line* line = letter->lines;
  size_t done;
  for (done = 0; done < letter->count; done += kLineFloats, ++line) {
    awaitMark(&line->mark, letter->peer);
    takeLine(letter->to + done, line, letter->with == NULL ? NULL : letter->with + done,
             letter->count - done);
  }
}

static struct Line* linesAt(int rank, size_t message, uint32_t depth) {
  return world.boxes[rank].mail + world.epoch % depth * message;
}

static void fetchLines(const void* start, size_t lines) {
  const char* line = start;
  size_t i;
  for (i = 0; i < lines; ++i) __builtin_prefetch(line + i * kLineBytes, 1);
#ifdef __GNUC__
  __asm__ volatile("" ::: "memory"); /* GCC 12 leaves out calls that do nothing but prefetch */
#endif
}

/* The lines of the next call, which nobody reads any more: their way back runs beside whatever
 * comes before that call. */
static void fetchBack(size_t message) {
  if (message < kFewLines) return;
  fetchLines(ownBox()->mail + (world.epoch + 1) % kMailDepth * message,
             smaller(message, kFetchedLines));
}

/* Each rank's vector to all: all-gather, and folded all-reduce. */
static void mailToAll(const struct Call* call, int isFolded) {
  const size_t message = linesOf(call->count);
  float* recv = call->recv;
  int step;
  putLines(linesAt(world.rank, message, kMailDepth), call->send, call->count);
  if (!isFolded) copyFloats(recv + (size_t)world.rank * call->count, call->send, call->count);
  for (step = 1; step < world.rankCount; ++step) {
    const int peer = peerAt(step);
    const float* sum = step == 1 ? call->send : recv;
    takeLetter(&(struct Letter){linesAt(peer, message, kMailDepth), peer,
                                isFolded ? recv : recv + (size_t)peer * call->count,
                                isFolded ? sum : NULL, call->count});
  }
  fetchBack(message);
}

/* A piece to each: all-to-all, and folded reduce-scatter. */
static void mailToEach(const struct Call* call, int isFolded) {
  const size_t count = call->count, lines = linesOf(count);
  const size_t message = lines * (size_t)world.rankCount, own = (size_t)world.rank;
  const float* kept = call->send + own * count;
  int step;
  for (step = 1; step < world.rankCount; ++step) {
    const size_t peer = (size_t)peerAt(step);
    putLines(linesAt(world.rank, message, kMailDepth) + peer * lines, call->send + peer * count,
             count);
  }
  if (!isFolded) copyFloats(call->recv + own * count, kept, count);
  for (step = 1; step < world.rankCount; ++step) {
    const int peer = peerAt(step);
    const float* sum = step == 1 ? kept : call->recv;
    takeLetter(&(struct Letter){linesAt(peer, message, kMailDepth) + own * lines, peer,
                                isFolded ? call->recv : call->recv + (size_t)peer * count,
                                isFolded ? sum : NULL, count});
  }
  fetchBack(message);
}

static void mailBroadcast(const struct Call* call) {
  const size_t message = linesOf(call->count);
  const uint32_t depth = (uint32_t)smaller(kMostDepth, kMailLines / message) & ~1u;
  if (world.rank == 0) {
    awaitConsumers(depth);
    putLines(linesAt(0, message, depth), call->recv, call->count);
    return;
  }
  takeLetter(&(struct Letter){linesAt(0, message, depth), 0, call->recv, NULL, call->count});
  tellRoot(depth);
}

static void mailPingPong(const struct Call* call) {
  const size_t message = linesOf(call->count);
  const int partner = world.partner;
  struct Line* own = linesAt(world.rank, message, kMailDepth);
  const struct Letter letter = {linesAt(partner < 0 ? 0 : partner, message, kMailDepth), partner,
                                call->recv, NULL, call->count};
  if (partner < 0) return;
  if (world.rank < partner) putLines(own, call->send, call->count);
  takeLetter(&letter);
  if (world.rank > partner) putLines(own, call->recv, call->count);
}

static int mailHas(enum Collective collective, size_t bytes) {
  return collective != kCollectiveCount && bytes <= kMailFloats * sizeof(float);
}

static void mailCall(const struct Call* call) {
  switch (call->collective) {
    case kAllReduce: return mailToAll(call, 1);
    case kAllGather: return mailToAll(call, 0);
    case kReduceScatter: return mailToEach(call, 1);
    case kAllToAll: return mailToEach(call, 0);
    case kBroadcast: return mailBroadcast(call);
    case kPingPong: return mailPingPong(call);
    case kCollectiveCount: break;
  }
}

/* Where a rank waits for what another is just writing; in a broadcast the root runs ahead. */
static int demoteHas(enum Collective collective, size_t bytes) {
#ifdef __CLDEMOTE__
  return collective != kCollectiveCount && collective != kBroadcast && world.cpuCount == 0 &&
         bytes <= kDemotedFloats * sizeof(float);
#else
  (void)collective;
  (void)bytes;
  return 0;
#endif
}

static void demoteCall(const struct Call* call) {
  isDemoting = 1;
  mailCall(call);
}

const struct Form mailForm = {"mail", "bare: mail", 0, mailHas, mailCall};
const struct Form demoteForm = {"demote", "bare: demote", 0, demoteHas, demoteCall};

/* ---- Bounce --------------------------------------------------------------------------------- */

enum {
  kBounceDepth = 2,
  kAhead = 2,
  kFetchedFloats = 8192,
  kLeastPieceFloats = 512,
  kOneShotFloats = 4096, /* more than two ranks share longer sums out */
  kTurnFloats = 65536
};

/* How a call lies in a region of each box: parcels, of pieces. */
struct Cut {
  int region;
  int parcels;
  size_t pieceFloats;
  size_t pieces;
  uint32_t depth;
};

/* What a rank posts, parcel by parcel, and what it takes: from each peer the same parcel, to
 * places of their own, `kept` beside them, or, where `own` is not NULL, all of them and `own`
 * summed to to[rank]. */
struct Exchange {
  struct Cut cut;
  const float* posted[kFewRanks];
  size_t postedCount[kFewRanks];
  int parcelTaken;
  const float* own;
  const float* kept; /* NULL: nothing */
  float* to[kFewRanks];
  size_t takenCount[kFewRanks];
};

/* For parcels of up to `count` floats. */
static struct Cut makeCut(int region, int parcels, size_t count) {
  struct Cut cut = {.region = region, .parcels = parcels, .depth = kBounceDepth};
  cut.pieceFloats =
      smaller(kPieceFloats, (count / 4 + kLeastPieceFloats - 1) & ~(size_t)(kLeastPieceFloats - 1));
  if (cut.pieceFloats == 0) cut.pieceFloats = kLeastPieceFloats;
  cut.pieces = (count + cut.pieceFloats - 1) / cut.pieceFloats;
  return cut;
}

/* The number of a piece's slot in the call of an epoch. */
static size_t slotIn(uint32_t epoch, const struct Cut* cut, int parcel, size_t piece) {
  const size_t message = epoch % cut->depth;
  return (message * (size_t)cut->parcels + (size_t)parcel) * cut->pieces + piece;
}

static size_t slotOf(const struct Cut* cut, int parcel, size_t piece) {
  return slotIn(world.epoch, cut, parcel, piece);
}

/* As fetchBack(), of a piece's slots: who has posted this call's piece has read the last call's. */
static void fetchPieceBack(const struct Cut* cut, size_t piece) {
  int parcel;
  if (cut->pieces * cut->pieceFloats > kFetchedFloats || world.cpuCount > 0) return;
  for (parcel = 0; parcel < cut->parcels; ++parcel) {
    const size_t slot = slotIn(world.epoch + 1, cut, parcel, piece);
    const struct Region* region = &ownBox()->regions[cut->region];
    if (cut->parcels > 1 && parcel == world.rank) continue;
    fetchLines(&region->marks[slot], 1);
    fetchLines(region->floats + slot * cut->pieceFloats,
               cut->pieceFloats * sizeof(float) / kLineBytes);
  }
}

static void postPiece(const struct Exchange* exchange, int parcel, size_t piece) {
  const struct Cut* cut = &exchange->cut;
  struct Region* region = &ownBox()->regions[cut->region];
  const size_t start = piece * cut->pieceFloats, slot = slotOf(cut, parcel, piece);
  const size_t count = exchange->postedCount[parcel];
  if (start >= count) return;
  keepFloats(region->floats + slot * cut->pieceFloats, exchange->posted[parcel] + start,
             smaller(cut->pieceFloats, count - start));
  setMark(&region->marks[slot].epoch);
}

/* A peer's, once it is there. */
static const float* awaitPiece(const struct Cut* cut, int peer, size_t slot) {
  const struct Region* region = &world.boxes[peer].regions[cut->region];
  awaitMark(&region->marks[slot].epoch, peer);
  return region->floats + slot * cut->pieceFloats;
}

static void takePiece(const struct Exchange* exchange, int peer, size_t piece) {
  const struct Cut* cut = &exchange->cut;
  const size_t start = piece * cut->pieceFloats, count = exchange->takenCount[peer];
  const size_t slot = slotOf(cut, exchange->parcelTaken, piece);
  if (start >= count) return;
  copyFloats(exchange->to[peer] + start, awaitPiece(cut, peer, slot),
             smaller(cut->pieceFloats, count - start));
}

static void foldPiece(const struct Exchange* exchange, size_t piece) {
  const struct Cut* cut = &exchange->cut;
  const size_t start = piece * cut->pieceFloats, count = exchange->takenCount[world.rank];
  const size_t slot = slotOf(cut, exchange->parcelTaken, piece);
  const float* parts[kFewRanks];
  int step;
  if (start >= count) return;
  parts[0] = exchange->own + start;
  for (step = 1; step < world.rankCount; ++step) {
    parts[step] = awaitPiece(cut, peerAt(step), slot);
  }
  foldParts(exchange->to[world.rank] + start, parts, smaller(cut->pieceFloats, count - start));
}

/* Posts some pieces ahead of those it takes, or all where the ranks have to take turns. */
static void runExchange(const struct Exchange* exchange) {
  const size_t pieces = exchange->cut.pieces;
  const size_t ahead = world.cpuCount > 0 ? pieces : kAhead;
  const int parcels = exchange->cut.parcels;
  size_t turn;
  int step;
  for (turn = 0; turn < pieces + ahead; ++turn) {
    for (step = 1; turn < pieces && step < (parcels == 1 ? 2 : parcels); ++step) {
      postPiece(exchange, parcels == 1 ? 0 : peerAt(step), turn);
    }
    if (turn + 1 == smaller(ahead, pieces) && exchange->kept != NULL) {
      copyFloats(exchange->to[world.rank], exchange->kept, exchange->takenCount[world.rank]);
    }
    if (turn < ahead) continue;
    if (exchange->own != NULL) {
      foldPiece(exchange, turn - ahead);
    } else {
      for (step = 1; step < world.rankCount; ++step) {
        takePiece(exchange, peerAt(step), turn - ahead);
      }
    }
    fetchPieceBack(&exchange->cut, turn - ahead);
  }
}

/* A call goes in turns, each a call of its own to slots and epochs, so that what it writes stays in
 * the caches. Its cut is that of a whole turn. */
struct Turn {
  const struct Call* call;
  size_t whole; /* floats of a turn that is not the last */
  size_t start, count;
};

/* Each rank's vector to all: all-gather, and folded all-reduce. */
static void bounceToAll(const struct Turn* turn, int isFolded) {
  const float* send = turn->call->send + turn->start;
  float* recv = turn->call->recv + turn->start;
  const size_t stride = isFolded ? 0 : turn->call->count;
  struct Exchange exchange = {
      .cut = makeCut(0, 1, turn->whole), .posted = {send}, .postedCount = {turn->count}};
  int rank;
  for (rank = 0; rank < world.rankCount; ++rank) {
    exchange.to[rank] = recv + (size_t)rank * stride;
    exchange.takenCount[rank] = turn->count;
  }
  if (isFolded) {
    exchange.own = send;
  } else {
    exchange.kept = send;
  }
  runExchange(&exchange);
}

/* A piece to each: all-to-all, and folded reduce-scatter. */
static void bounceToEach(const struct Turn* turn, int isFolded) {
  const size_t stride = turn->call->count;
  const float* send = turn->call->send + turn->start;
  const float* own = send + (size_t)world.rank * stride;
  float* recv = turn->call->recv + turn->start;
  struct Exchange exchange = {.cut = makeCut(0, world.rankCount, turn->whole),
                              .parcelTaken = world.rank};
  int rank;
  for (rank = 0; rank < world.rankCount; ++rank) {
    exchange.posted[rank] = send + (size_t)rank * stride;
    exchange.postedCount[rank] = exchange.takenCount[rank] = turn->count;
    exchange.to[rank] = isFolded ? recv : recv + (size_t)rank * stride;
  }
  if (isFolded) {
    exchange.own = own;
  } else {
    exchange.kept = own;
  }
  runExchange(&exchange);
}

/* Reduce-scatter, then all-gather of the sums. */
static void bounceInTwo(const struct Turn* turn) {
  const float* send = turn->call->send + turn->start;
  float* recv = turn->call->recv + turn->start;
  const size_t start = chunkStart(turn->count, world.rank);
  const size_t count = chunkCount(turn->count, world.rank), most = chunkCount(turn->whole, 0);
  struct Exchange scatter = {
      .cut = makeCut(0, world.rankCount, most), .parcelTaken = world.rank, .own = send + start};
  struct Exchange gather = {
      .cut = makeCut(1, 1, most), .posted = {recv + start}, .postedCount = {count}};
  int rank;
  for (rank = 0; rank < world.rankCount; ++rank) {
    scatter.posted[rank] = send + chunkStart(turn->count, rank);
    scatter.postedCount[rank] = gather.takenCount[rank] = chunkCount(turn->count, rank);
    gather.to[rank] = recv + chunkStart(turn->count, rank);
  }
  scatter.to[world.rank] = recv + start;
  scatter.takenCount[world.rank] = count;
  runExchange(&scatter);
  runExchange(&gather);
}

static void bounceBroadcast(const struct Turn* turn) {
  float* recv = turn->call->recv + turn->start;
  struct Exchange exchange = {.cut = makeCut(0, 1, turn->whole),
                              .posted = {recv},
                              .postedCount = {turn->count},
                              .to = {recv},
                              .takenCount = {turn->count}};
  struct Cut* cut = &exchange.cut;
  const size_t fitting = kRegionFloats / cut->pieceFloats / cut->pieces;
  size_t piece;
  cut->depth = (uint32_t)smaller(kMostDepth, smaller(fitting, kRegionMarks / cut->pieces)) & ~1u;
  if (world.rank == 0) awaitConsumers(cut->depth);
  for (piece = 0; piece < cut->pieces; ++piece) {
    if (world.rank == 0) {
      postPiece(&exchange, 0, piece);
    } else {
      takePiece(&exchange, 0, piece);
    }
  }
  if (world.rank != 0) tellRoot(cut->depth);
}

/* One way, which the other end has as its next call: turns of one way have no answers that free
 * their slots, so all of a message has slots of its own. */
static void bouncePingPong(const struct Call* call) {
  const int partner = world.partner, isFirst = world.rank < partner;
  struct Exchange exchange = {.cut = makeCut(0, 1, call->count),
                              .posted = {isFirst ? call->send : call->recv},
                              .postedCount = {call->count}};
  size_t piece;
  if (partner < 0) return;
  exchange.to[partner] = call->recv;
  exchange.takenCount[partner] = call->count;
  for (piece = 0; isFirst && piece < exchange.cut.pieces; ++piece) postPiece(&exchange, 0, piece);
  for (piece = 0; piece < exchange.cut.pieces; ++piece) takePiece(&exchange, partner, piece);
  for (piece = 0; !isFirst && piece < exchange.cut.pieces; ++piece) postPiece(&exchange, 0, piece);
}

static int bounceHas(enum Collective collective, size_t bytes) {
  if (collective == kPingPong) return bytes >= 1024 && bytes <= kBounceFloats * sizeof(float);
  return collective != kCollectiveCount && bytes >= 1024;
}

static void bounceTurn(const struct Turn* turn) {
  switch (turn->call->collective) {
    case kAllReduce:
      if (world.rankCount == 2 || turn->whole <= kOneShotFloats) return bounceToAll(turn, 1);
      return bounceInTwo(turn);
    case kAllGather: return bounceToAll(turn, 0);
    case kReduceScatter: return bounceToEach(turn, 1);
    case kAllToAll: return bounceToEach(turn, 0);
    case kBroadcast: return bounceBroadcast(turn);
    case kPingPong: return bouncePingPong(turn->call);
    case kCollectiveCount: break;
  }
}

/* The last turn is shorter, but has the others' slots. */
static void bounceCall(const struct Call* call) {
  const size_t ranks = (size_t)world.rankCount;
  const size_t whole = isInPieces(call->collective) ? kTurnFloats / ranks : kTurnFloats;
  const size_t most = call->collective == kPingPong ? call->count : whole;
  struct Turn turn = {.call = call, .whole = smaller(call->count, most)};
  for (; turn.start < call->count; turn.start += most) {
    turn.count = smaller(most, call->count - turn.start);
    if (turn.start > 0) ++world.epoch;
    bounceTurn(&turn);
  }
}

const struct Form bounceForm = {"bounce", "bare: bounce", 0, bounceHas, bounceCall};
