/* How the ranks of a job meet, and what they do when one is missing, comes twice or dies at any step.
 *
 *   proctype root    src/bootstrap/root.cc (serveOnce, takeReport, drop, answerAll, close), whose rules are
 *                    src/bootstrap/meeting.cc (arrive, leave, expire)
 *   proctype rank    src/bootstrap/root_client.cc (RootClient::run: connect, report, awaitAnswer), then the
 *                    all-gather of src/bootstrap/bootstrap.cc in log2(n) rounds
 *
 * Time is Spin's `timeout`: the root's patience ends when nothing else can happen any more. Ranks have none here:
 * while the root lives each must hear from it, or Spin reports a deadlock ("invalid end state").
 *
 * Claims: everyone ends; nobody succeeds unless every number had come; two claimants of a number never both
 * succeed; the root tells those who came in time all the same, and all of them unless it dies; undisturbed, all
 * succeed.
 *
 * BUG=1: the root counts arrivals instead of numbers. BUG=2: a failure is told only to those who come later.
 * BUG=3: a rank that left before the end is not noticed and no patience ends. Each must be caught. */
#ifndef BUG
#define BUG 0
#endif
#define N 3
#define CLIENTS (N + 1) /* one more than there are numbers: the double of rank 0, if it comes */

mtype = { kReport, kAnswer, kFailure, kRunning, kOk, kFailed, kDead, kAbsent }
mtype = { kGathering, kMet, kLost }

chan toRoot[CLIENTS] = [1] of { mtype };
chan toRank[CLIENTS] = [1] of { mtype };
bool hasLeft[CLIENTS];      /* the client's socket is closed */
bool rootIsGone;            /* the root's process has died, or its listener is closed */
bool rootDied;
bool inTime[CLIENTS];       /* the root took the client's report while ranks were gathering */
chan block[N * N] = [1] of { bool };  /* all-gather, from * N + to */

mtype meeting = kGathering;
mtype fate[CLIENTS] = kRunning;
byte ended;
bool disturbed;  /* somebody died, stayed away or came twice */
byte deaths;     /* at most one, at any step */
bool toldAnswer, toldFailure;  /* to those who came in time */

#define number(c) ((c) % N)
#define peerHasLeft(n) (hasLeft[n] && ((n) != 0 || hasLeft[N])) /* whoever came as that number */
#define came(n) (fate[n] != kAbsent || ((n) == 0 && fate[N] != kAbsent))

/* Any step of a rank may be its last. */
#define MAY_DIE(c) \
  :: deaths == 0 -> atomic { deaths++; disturbed = true; hasLeft[c] = true; fate[c] = kDead; ended++; goto over }

#define FAIL(c) atomic { hasLeft[c] = true; fate[c] = kFailed; ended++; goto over }

proctype root() {
  byte c;
  byte arrived;          /* how many numbers */
  bool present[N];
  bool reported[CLIENTS], isLate[CLIENTS], answered[CLIENTS];
  do
  :: atomic { c = 0; do
     :: c < CLIENTS && toRoot[c]?[kReport] -> break
     :: c < CLIENTS -> c++
     :: c == CLIENTS -> break
     od }
     if
     :: c < CLIENTS -> atomic {
          /* takeReport */
          toRoot[c]?kReport; reported[c] = true; isLate[c] = (meeting != kGathering);
          inTime[c] = !isLate[c];
          if
          :: isLate[c] -> skip
          :: else ->
             if
             :: BUG != 1 && present[number(c)] -> meeting = kLost
             :: else ->
                present[number(c)] = true; arrived++;
                if :: arrived == N -> meeting = kMet :: else -> skip fi
             fi
          fi }
     :: else -> atomic {
          /* drop: a rank that had reported and is gone; the job cannot start */
          c = 0;
          do
          :: c < CLIENTS && BUG != 3 && reported[c] && hasLeft[c] && !answered[c] && meeting == kGathering ->
             meeting = kLost; break
          :: c < CLIENTS -> c++
          :: c == CLIENTS -> break
          od }
     fi
     /* answerAll */
     atomic { c = 0; do
     :: c < CLIENTS && reported[c] && !answered[c] && meeting != kGathering ->
        answered[c] = true;
        if
        :: meeting == kMet && !isLate[c] -> toRank[c]!kAnswer; toldAnswer = true
        :: BUG == 2 && meeting == kLost && !isLate[c] -> skip
        :: else -> toRank[c]!kFailure; if :: !isLate[c] -> toldFailure = true :: else -> skip fi
        fi;
        assert(!(toldAnswer && toldFailure)); c++
     :: c < CLIENTS && !(reported[c] && !answered[c] && meeting != kGathering) -> c++
     :: c == CLIENTS -> c = 0; break
     od }
     /* Wait for a socket, or for the first rank's patience. */
     if
     :: toRoot[0]?[kReport] || toRoot[1]?[kReport] || toRoot[2]?[kReport] || toRoot[3]?[kReport]
     :: BUG != 3 && meeting == kGathering &&
        ((reported[0] && hasLeft[0]) || (reported[1] && hasLeft[1]) || (reported[2] && hasLeft[2]) ||
         (reported[3] && hasLeft[3]))
     :: BUG != 3 && timeout && meeting == kGathering && arrived > 0 -> meeting = kLost
     :: deaths == 0 -> atomic { deaths++; disturbed = true; rootIsGone = true; rootDied = true; break }
     :: ended == CLIENTS -> break
     /* close(): all have been answered, and nobody else is expected for long */
     :: timeout && meeting != kGathering -> atomic { rootIsGone = true; break }
     fi
  od
}

proctype rank(byte c) {
  byte round, to, from;
  mtype word;
  bool good;
  if
  :: c < N -> skip
  :: c < N -> atomic { disturbed = true; hasLeft[c] = true; fate[c] = kAbsent; ended++; goto over }
  :: c >= N -> atomic { hasLeft[c] = true; fate[c] = kAbsent; ended++; goto over }
  :: c >= N -> disturbed = true
  fi;
  if
  :: rootIsGone -> FAIL(c)  /* kNobody */
  :: !rootIsGone -> toRoot[c]!kReport
  MAY_DIE(c)
  fi;
  if
  :: toRank[c]?word
  :: rootIsGone && empty(toRank[c]) -> assert(rootDied || !inTime[c]); FAIL(c)  /* kLeft */
  MAY_DIE(c)
  fi;
  if :: word == kFailure -> FAIL(c) :: else -> skip fi;
  /* All-gather: round k sends to the rank 2^k before and hears from the one 2^k behind. */
  round = 1;
  do
  :: round < N ->
     to = (number(c) + N - round) % N; from = (number(c) + round) % N;
     if
     :: nfull(block[number(c) * N + to]) -> block[number(c) * N + to]!true
     :: full(block[number(c) * N + to]) -> FAIL(c)
     MAY_DIE(c)
     fi;
     if
     :: block[from * N + number(c)]?good
     :: peerHasLeft(from) && empty(block[from * N + number(c)]) -> FAIL(c)  /* farewell, reset or nobody there */
     MAY_DIE(c)
     fi;
     round = round * 2
  :: else -> break
  od;
  atomic { fate[c] = kOk; ended++ }
over:
  skip
}

proctype monitor() {
  byte c;
  ended == CLIENTS;
  c = 0;
  do
  :: c < CLIENTS ->
     assert(disturbed || c == N || fate[c] == kOk);
     if
     :: fate[c] == kOk -> assert(meeting == kMet && came(0) && came(1) && came(2))
     :: else -> skip
     fi;
     c++
  :: else -> break
  od;
  assert(!(fate[0] == kOk && fate[N] == kOk))
}

init {
  atomic {
    byte c = 0;
    run root();
    do :: c < CLIENTS -> run rank(c); c++ :: else -> break od;
    run monitor()
  }
}
