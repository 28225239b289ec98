/* How ranks meet at several roots, a group of them and a guest at each, and what they do when one is missing, comes with
 * another list of roots, is aborted or dies at any step, or when a root dies.
 *
 *   proctype visit             src/bootstrap/group_meeting.cc (askAt; two at a time for the first rank of a group,
 *                              meetAtRoots), and what it says at the root: src/bootstrap/meeting.cc (arrive)
 *   proctype visit, from met   src/bootstrap/group_meeting.cc (learnInGroups: all-gather in the group, passAround, passDown)
 *   proctype root              src/bootstrap/root.cc: who leaves, whose patience ends; its rules are those of bootstrap.pml
 *   FAIL                       src/bootstrap/bootstrap.cc (bidFarewell to acquaintances, closeOthersRoots)
 *
 * One mishap at most, in group 0 where it is one rank's or root's: groups are alike. A root is in the process of its
 * group's first rank, or in one that has no rank. An answer may be lost with the root that sent it. Time is Spin's
 * `timeout`: the patience of roots, and of ranks once something died. Else ranks have none: they must hear from the
 * others, or Spin reports a deadlock. So a rank that leaves a root which still gathers waits for its answer (root_client.cc,
 * awaitAnswer): the root may have heard the last report first, and then the others wait for it, whom it now knows.
 *
 * Claims: everyone ends; who succeeds has the same list as all, and all came to both their roots; undisturbed, all
 * succeed.
 *
 * BUG=1: a rank that fails tells nobody. BUG=2: a root does not compare lists. BUG=3: who has met at its own roots has met
 * all. BUG=4: a rank that leaves does not wait for the answer. Each must be caught. N ranks in G groups; 4 in 2 unless
 * set. With 3 in 3, where nobody hears from a rank that it has sent to, lists that differ leave no root complete, so BUG=2 shows with the former only, BUG=1 and 4 with the latter. */
#ifndef BUG
#define BUG 0
#endif
#ifndef N
#define N 4
#endif
#ifndef G
#define G 2
#endif
#define S (N / G)
#define VISITS (N + G) /* rank r's to its group's root is r; that of group g's first rank to the root before it N + g */

mtype = { kNone, kAbsence, kLists, kAbort, kRankDeath, kRootDeath }  /* mishaps */
mtype = { kRunning, kOk, kFailed, kDead, kAbsent }
mtype = { kGathering, kMet, kLost }

#define groupOf(r) ((r) / S)
#define first(g) ((g) * S)
#define isFirst(r) ((r) % S == 0)
#define after(g) (((g) + 1) % G)
#define before(g) (((g) + G - 1) % G)

mtype mishap = kNone;
bool hasHappened;           /* the one abort, absence or death */
bool isAtHome;              /* roots are in the processes of their groups' first ranks */
bit list[N];                /* 1: turned by one */
mtype fate[N] = kRunning;
byte ended;
mtype result[VISITS] = kRunning;
bool hasFailed[N];          /* at one root: the other visit gives up */

mtype meeting[G] = kGathering;
bool isGone[G];             /* the root has died */
byte kindAt[G];             /* what the first report said of group and list; 0: nobody has come */
byte present[G];            /* numbers, as bits */
bool isLeft[G];             /* somebody who had reported has left */

/* Messages between ranks, and farewells, by from * N + to. */
bool block[N * N], down[N * N], farewell[N * N];
byte around[N];             /* how many blocks of the ring have come to a first rank */

#define died(r) (fate[r] == kDead)
#define loseIfGathering(p) if :: meeting[p] == kGathering -> meeting[p] = kLost :: else -> skip fi
#define dieNow(r) hasHappened = true; fate[r] = kDead; ended++; \
  if :: isAtHome && isFirst(r) -> isGone[groupOf(r)] = true :: else -> skip fi; \
  isLeft[placeOf(r, groupOf(r))] = true; \
  if :: isFirst(r) -> isLeft[placeOf(r, before(groupOf(r)))] = true :: else -> skip fi

#define placeOf(r, g) (((g) + list[r]) % G)

/* Tells those it has heard of; roots of its process that still gather end. */
inline fail(r) {
  d_step {
    if
    :: BUG != 1 && result[r] == kOk ->
       other = 0;
       do
       :: other < S -> farewell[r * N + first(groupOf(r)) + other] = true; other++
       :: else -> break
       od;
       if :: isFirst(r) -> farewell[r * N + first(after(groupOf(r)))] = true :: else -> skip fi
    :: else -> skip
    fi;
    if
    :: BUG != 1 && isFirst(r) && result[N + groupOf(r)] == kOk -> farewell[r * N + first(before(groupOf(r)))] = true
    :: else -> skip
    fi;
    if :: isAtHome && isFirst(r) -> loseIfGathering(groupOf(r)) :: else -> skip fi;
    fate[r] = kFailed; ended++
  }
}

/* Sends, together with the receive before: nobody sees the difference. */
#define mate(r) (first(groupOf(r)) + 1 - ((r) - first(groupOf(r))))
#define startRing(r) if :: isFirst(r) -> around[first(after(groupOf(r)))]++ :: else -> skip fi
#define tellGroup(r) if :: S == 2 -> block[(r) * N + mate(r)] = true :: else -> startRing(r) fi
#define goOn(r, step) \
  if \
  :: step + 1 < G -> around[first(after(groupOf(r)))]++ \
  :: step + 1 == G && S == 2 -> down[(r) * N + (r) + 1] = true \
  :: else -> skip \
  fi

/* meeting.cc, arrive */
inline arrive(p, kind, at) {
  d_step {
    if
    :: kindAt[p] == 0 -> kindAt[p] = kind
    :: else -> skip
    fi;
    if
    :: (BUG != 2 && kindAt[p] != kind) || (present[p] & (1 << at)) -> meeting[p] = kLost
    :: else ->
       present[p] = present[p] | (1 << at);
       if
       :: present[p] == (1 << (S + 1)) - 1 -> meeting[p] = kMet
       :: else -> skip
       fi
    fi
  }
}

#define LEAVE isLeft[place] = true; hasFailed[r] = true; if :: BUG == 4 -> LOSE(v) :: else -> goto answer fi
#define LOSE(v) result[v] = kFailed; hasFailed[r] = true; goto joined

#define MAY_DIE(r) \
  :: atomic { r < S && mishap == kRankDeath && !hasHappened && !died(r) -> dieNow(r); goto over }
#define MAY_BE_ABORTED(r) \
  :: atomic { r < S && mishap == kAbort && !hasHappened && !died(r) -> hasHappened = true; fail(r); goto over }

/* Ends with the message, which `then` answers, or with the news that it will not come. */
#define RECEIVE(message, from, hasSentToIt, then) \
  if \
  :: atomic { message && !died(r) -> then } \
  :: atomic { !(message) && !died(r) && (farewell[(from) * N + r] || (hasSentToIt && fate[from] == kFailed)) -> \
       fail(r); goto over } \
  :: atomic { died(from) -> fail(r); goto over } \
  :: atomic { hasHappened && (mishap == kRankDeath || mishap == kRootDeath) && timeout -> fail(r); goto over } \
  MAY_DIE(r) \
  MAY_BE_ABORTED(r) \
  fi

proctype root(byte p) {
  do
  :: atomic { meeting[p] == kGathering && isLeft[p] && kindAt[p] != 0 && !isGone[p] -> meeting[p] = kLost }
  :: atomic { meeting[p] == kGathering && kindAt[p] != 0 && !isGone[p] && timeout -> meeting[p] = kLost }
  :: p == 0 && mishap == kRootDeath && !hasHappened -> d_step { hasHappened = true; isGone[p] = true }
  :: ended == N -> break
  od
}

/* Of a rank to its group's root, or of a guest; the former goes on as the rank itself. */
proctype visit(byte v) {
  byte r, group, place, number, other, step;
  r = (v < N -> v : first(v - N));
  group = (v < N -> groupOf(r) : before(v - N));
  place = placeOf(r, group);
  number = r - first(group);
  if :: v >= N -> number = S :: else -> skip fi;
  if  /* report */
  :: atomic { !died(r) && !hasFailed[r] && !isGone[place] && meeting[place] == kGathering ->
       arrive(place, 1 + group * 2 + list[r], number) }
  :: atomic { !died(r) && (hasFailed[r] || isGone[place] || meeting[place] != kGathering) -> LOSE(v) }
  :: died(r) -> goto over
  MAY_DIE(r)
  fi;
answer:
  if
  :: atomic { !died(r) && meeting[place] == kMet -> result[v] = kOk }
  :: atomic { !died(r) && (meeting[place] == kLost || isGone[place]) -> LOSE(v) }
  :: atomic { !died(r) && hasFailed[r] && !isLeft[place] && meeting[place] == kGathering -> LEAVE }
  :: atomic { r < S && mishap == kAbort && !hasHappened && !died(r) && meeting[place] == kGathering ->
       hasHappened = true; LEAVE }
  :: died(r) -> goto over
  MAY_DIE(r)
  fi;
joined:
  if :: v >= N -> goto over :: else -> skip fi;
  if
  :: atomic { isFirst(r) && !died(r) && result[N + groupOf(r)] != kRunning && !hasFailed[r] -> tellGroup(r) }
  :: atomic { isFirst(r) && !died(r) && result[N + groupOf(r)] != kRunning && hasFailed[r] -> fail(r); goto over }
  :: atomic { !isFirst(r) && !died(r) && !hasFailed[r] -> tellGroup(r) }
  :: atomic { !isFirst(r) && !died(r) && hasFailed[r] -> fail(r); goto over }
  :: died(r) -> goto over
  MAY_DIE(r)
  fi;
  if :: BUG == 3 -> goto met :: else -> skip fi;
  /* All-gather in the group, of one or two. */
  if
  :: S == 2 -> RECEIVE(block[mate(r) * N + r], mate(r), true, startRing(r))
  :: S == 1
  fi;
  if
  :: isFirst(r) ->
     step = 1;
     do
     :: step < G ->
        RECEIVE(around[r] >= step, first(before(group)), G == 2, goOn(r, step));
        step++
     :: step == G -> break
     od
  :: else -> RECEIVE(down[first(group) * N + r], first(group), true, skip)
  fi;
met:
  atomic { fate[r] = kOk; ended++ }
over:
  skip
}

proctype monitor() {
  byte r, s;
  ended == N;
  d_step {
    r = 0;
    do
    :: r < N ->
       assert(mishap != kNone || fate[r] == kOk);
       s = 0;
       do
       :: s < N && fate[r] == kOk ->
          assert(list[s] == list[r] && fate[s] != kAbsent && result[s] == kOk && meeting[groupOf(s)] == kMet);
          s++
       :: else -> break
       od;
       r++
    :: else -> break
    od
  }
}

init {
  byte r = 0;
  atomic {
    if
    :: mishap = kAbsence
    :: mishap = kLists
    :: mishap = kAbort
    :: mishap = kRankDeath
    :: mishap = kRootDeath
    :: skip
    fi;
    if :: mishap != kRootDeath -> isAtHome = true :: skip fi;
    do
    :: r < N ->
       if
       :: mishap == kLists -> list[r] = 1
       :: r < S && mishap == kAbsence && !hasHappened -> hasHappened = true; fate[r] = kAbsent; ended++
       :: skip
       fi;
       if :: fate[r] == kRunning -> run visit(r) :: else -> skip fi;
       if :: fate[r] == kRunning && isFirst(r) -> run visit(N + groupOf(r)) :: else -> skip fi;
       r++
    :: else -> break
    od;
    r = 0;
    do :: r < G -> run root(r); r++ :: else -> break od;
    run monitor()
  }
}
