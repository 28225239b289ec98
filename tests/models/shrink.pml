/* How survivors of a communicator agree on the next one: ncclCommShrink, and the part of ncclCommSplit behind the choice
 * of colours.
 *
 *   proctype rank, gathering   src/comm/subgroup.cc (gather), called by Communicator::meetChild of src/comm/derive.cc;
 *                              a message's place is its tag, which src/comm/derive.cc (nextShrinkTag) makes of the list
 *   proctype rank, meeting     src/bootstrap/root.cc (meet), whose rules are src/bootstrap/meeting.cc
 *   proctype rank, last round  the all-gathers of src/bootstrap/bootstrap.cc (learnAll) and src/comm/init.cc (agree)
 *
 * A rank gives any list that it is in, calls or does not, may be aborted or die at any step, the first of a list may fail
 * to open the root, and one patience may end at any moment, the others when nothing else can happen (Spin's `timeout`).
 *
 * Claims: everyone ends. Who succeeds has the same list as all others on it, all of them had come to the meeting, and
 * none of them refuses: two survivors never have different memberships. Undisturbed, ranks that give one list all
 * succeed.
 *
 * No claim: a rank that dies between the meeting and the last round may leave some with a communicator, of which it is a
 * dead member, and others with an error. (That no protocol avoids: the news of the last message is a message.)
 *
 * BUG=1: a member that fails tells nobody, and nobody's patience ends. BUG=2: the gathering is all there is: no meeting,
 * no last round. BUG=3: a partner's failure is taken for its blocks. Each must be caught. */
#ifndef BUG
#define BUG 0
#endif
#define N 3
#define LISTS 3 /* {0,1,2}, {0,1}, {1,2} */
#define ROUNDS 2

mtype = { kRunning, kOk, kFailed, kDead, kAbsent }
mtype = { kGathering, kMet, kLost }

#define NONE 0
#define BLOCKS 1
#define FAILURE 2

byte message[LISTS * 2 * ROUNDS * N * N];  /* by list, phase, round, from, to */
mtype meeting[LISTS] = kGathering;
byte joined[LISTS];  /* how many */
bool hasJoined[N];   /* the list's meeting */
bool hasLeft[N];     /* its process, or its part in this, has ended: its sockets close */
bool rootIsGone[LISTS];
mtype fate[N] = kRunning;
byte list[N];
byte ended, deaths, impatient;
bool disturbed;
bool refuses[N];

#define isIn(r, l) ((l) == 0 || ((l) == 1 && (r) < 2) || ((l) == 2 && (r) > 0))
#define first(l) ((l) == 2 -> 1 : 0)
#define count(l) ((l) == 0 -> 3 : 2)
#define member(l, place) (first(l) + (place))
#define slot(l, phase, round, from, to) (((((l) * 2 + (phase)) * ROUNDS + (round)) * N + (from)) * N + (to))

#define END(how) atomic { hasLeft[me] = true; fate[me] = how; ended++; goto over }
/* Any step may be the last one; an abort is a failure that comes from outside. */
#define MAY_STOP \
  :: deaths == 0 -> atomic { deaths++; disturbed = true; rootIsGone[mine] = rootIsGone[mine] || me == first(mine); END(kDead) }

/* Bruck's rounds among the list's members, over the parent's bootstrap (phase 0) or the child's (1). */
inline rounds(phase) {
  round = 0; distance = 1;
  do
  :: distance < count(mine) ->
     to = member(mine, (me - first(mine) + count(mine) - distance) % count(mine));
     from = member(mine, (me - first(mine) + distance) % count(mine));
     if
     :: !good && BUG == 1 -> skip
     :: !good && BUG != 1 -> message[slot(mine, phase, round, me, to)] = FAILURE
     :: good -> message[slot(mine, phase, round, me, to)] = BLOCKS;
        if
        :: message[slot(mine, phase, round, from, me)] != NONE ->
           good = (BUG == 3 || message[slot(mine, phase, round, from, me)] == BLOCKS)
        :: message[slot(mine, phase, round, from, me)] == NONE && fate[from] == kDead -> good = false
        :: message[slot(mine, phase, round, from, me)] == NONE && phase == 1 && hasLeft[from] && fate[from] != kOk ->
           good = false  /* the farewell */
        :: BUG != 1 && impatient == 0 -> atomic { impatient++; disturbed = true; good = false }
        :: BUG != 1 && timeout -> good = false
        MAY_STOP
        fi
     fi;
     round++; distance = distance * 2
  :: else -> break
  od
}

proctype rank(byte me) {
  byte mine, to, from, round, distance;
  bool good = true;
  mine = list[me];
  if
  :: skip
  :: atomic { disturbed = true; END(kAbsent) }  /* does not call */
  fi;
  if  /* openRoot */
  :: me != first(mine)
  :: me == first(mine)
  :: me == first(mine) -> disturbed = true; good = false
  fi;
  rounds(0);
  if
  :: !good -> atomic { if :: me == first(mine) -> rootIsGone[mine] = true :: else -> skip fi; END(kFailed) }
  :: good
  fi;
  atomic {
    hasJoined[me] = true; joined[mine]++;
    if :: joined[mine] == count(mine) && meeting[mine] == kGathering -> meeting[mine] = kMet :: else -> skip fi
  }
  if
  :: BUG == 2 -> END(kOk)
  :: meeting[mine] == kMet && !rootIsGone[mine]
  :: BUG != 2 && meeting[mine] != kMet && rootIsGone[mine] -> END(kFailed)
  :: BUG != 2 && meeting[mine] == kMet && rootIsGone[mine] -> END(kFailed)  /* the answer was not sent, or lost */
  :: meeting[mine] == kLost -> END(kFailed)
  :: BUG != 2 && impatient == 0 && meeting[mine] == kGathering ->
     atomic { impatient++; disturbed = true; meeting[mine] = kLost; END(kFailed) }
  :: BUG != 2 && timeout && meeting[mine] == kGathering -> atomic { meeting[mine] = kLost; END(kFailed) }
  MAY_STOP
  fi;
  if
  :: skip
  :: atomic { disturbed = true; refuses[me] = true; good = false }  /* agree: versions, settings, no memory */
  fi;
  rounds(1);
  if :: good -> END(kOk) :: else -> END(kFailed) fi;
over:
  skip
}

proctype monitor() {
  byte r = 0, s;
  ended == N;
  do
  :: r < N ->
     s = 0;
     do
     :: s < N && fate[r] == kOk && isIn(s, list[r]) -> assert(list[s] == list[r] && hasJoined[s] && !refuses[s]); s++
     :: s < N && !(fate[r] == kOk && isIn(s, list[r])) -> s++
     :: s == N -> break
     od;
     assert(disturbed || list[0] != list[1] || list[1] != list[2] || fate[r] == kOk);
     r++
  :: else -> break
  od
}

init {
  byte r = 0, l;
  atomic {
    do
    :: r < N ->
       if
       :: l = 0
       :: isIn(r, 1) -> l = 1
       :: isIn(r, 2) -> l = 2
       fi;
       list[r] = l; run rank(r); r++
    :: else -> break
    od;
    run monitor()
  }
}
