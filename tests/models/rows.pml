/* How warps of ranks exchange rows by wide lines (src/kernels/cuda/wide_lines.cuh): of each collective, the same warp of
 * N ranks, K rows each.
 *
 *   proctype warp   WideCall::run; steps A, B, C and the acknowledgements as its head names them
 *   PLACE           WideCall::placeOf
 *
 * A place holds one row. Nobody is told that a place may be written again: what has come implies it. Stores to several
 * peers, and loads from several, come in any order between ranks.
 *
 * Claims: a row is never written over one that has not been read; a warp never finds another row than the one awaited
 * where that one was; and all end.
 *
 * KIND: 0 all-reduce in two stages, 1 all-gather and the like, 2 reduce in two stages, 3 broadcast in two stages, 4
 * broadcast in one. BUG=1: one place for the rows of all. BUG=2: no acknowledgements. BUG=3: all ranks send a row ahead, as a
 * reduction's root does. Each must be caught, where the kind has what the bug takes away. */
#ifndef BUG
#define BUG 0
#endif
#ifndef KIND
#define KIND 0
#endif
#ifndef N
#define N 3
#endif
#define K 5
#define ROOT 0

#define ALL_REDUCE (KIND == 0)
#define EXCHANGE (KIND == 1)
#define REDUCE (KIND == 2)
#define TWO_STAGES (KIND == 3)
#define ONE_STAGE (KIND == 4)

#define isOther(p) ((p) != me)
#define SENDS(p) (isOther(p) && (ALL_REDUCE || EXCHANGE || (REDUCE && (p) != ROOT) || ((TWO_STAGES || ONE_STAGE) && me == ROOT)))
#define RECEIVES(p) (isOther(p) && (ALL_REDUCE || EXCHANGE || (REDUCE && me != ROOT) || ((TWO_STAGES || ONE_STAGE) && (p) == ROOT)))
#define FORWARDS(p) (isOther(p) && (ALL_REDUCE || (REDUCE && me != ROOT && (p) == ROOT) || (TWO_STAGES && me != ROOT && (p) != ROOT)))
#define COLLECTS(p) (isOther(p) && (ALL_REDUCE || (REDUCE && me == ROOT) || (TWO_STAGES && me != ROOT && (p) != ROOT)))
#define ACKS_TO(p) (BUG != 2 && (TWO_STAGES || ONE_STAGE) && me != ROOT && (p) == ROOT)
#define ACKS_FROM(p) (BUG != 2 && (TWO_STAGES || ONE_STAGE) && me == ROOT && isOther(p))
#define IS_AHEAD ((REDUCE && me == ROOT) || (BUG == 3))

#define NUMBER(row, stage) (2 * (row) + (stage) + 1)
#define PLACE(to, from, row, stage) (((to) * N + (from)) * 2 + (BUG == 1 -> 0 : (ALL_REDUCE -> (stage) : (row) % 2)))

byte held[N * N * 2];   /* the row's number; 0: none yet */
bool isRead[N * N * 2]; /* by whom it is for */

inline store(to, row, stage) {
  atomic {
    assert(held[PLACE(to, me, row, stage)] == 0 || isRead[PLACE(to, me, row, stage)]);
    held[PLACE(to, me, row, stage)] = NUMBER(row, stage);
    isRead[PLACE(to, me, row, stage)] = false
  }
}

inline await(from, row, stage) {
  atomic {
    held[PLACE(me, from, row, stage)] >= NUMBER(row, stage) ->
    assert(held[PLACE(me, from, row, stage)] == NUMBER(row, stage));
    isRead[PLACE(me, from, row, stage)] = true
  }
}

/* Of each peer that `which` names. */
#define EACH(which, what) \
  p = 0; \
  do \
  :: p < N && which -> what; p++ \
  :: p < N && !(which) -> p++ \
  :: p == N -> break \
  od

proctype warp(byte me) {
  byte k, p, next;
  if
  :: IS_AHEAD -> EACH(SENDS(p), store(p, 0, 0))
  :: else
  fi;
  do
  :: k < K ->
    if
    :: k >= 2 -> EACH(ACKS_FROM(p), await(p, k - 2, 0))
    :: else
    fi;
    next = k + (IS_AHEAD -> 1 : 0);
    if
    :: next < K -> EACH(SENDS(p), store(p, next, 0))
    :: else
    fi;
    EACH(RECEIVES(p), await(p, k, 0));
    EACH(FORWARDS(p), store(p, k, 1));
    EACH(COLLECTS(p), await(p, k, 1));
    if
    :: k + 2 < K -> EACH(ACKS_TO(p), store(p, k, 0))
    :: else
    fi;
    k++
  :: k == K -> break
  od
}

init {
  byte i;
  atomic {
    do
    :: i < N -> run warp(i); i++
    :: i == N -> break
    od
  }
}
