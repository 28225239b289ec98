/* A receiver that offers the place of a message before that is there, and a sender that writes its part there as soon as it
 * has published the message (src/wire/joint_copy.h, src/kernels/joint_copy.cc): MESSAGES calls of a message each, of which
 * any may fail at the receiver, at any time.
 *
 *   wanted, place                  JointOffer
 *   marked, isDivided, answered    MessageHead, JointCopy::answered
 *   isWriting, fault               LinkControl::isWriting, receiverFault
 *   proctype sender                JointSend, beginWriting(), endWriting()
 *   proctype receiver              Execution::offerJointly(), JointReceive::poll(), Launcher::awaitWriters()
 *
 * What the sender stores stays in its core's buffer, in order, and leaves it at any later time, or when the receiver fences
 * all ranks' threads.
 *
 * Claims: what the sender writes goes to the place of its own message, while that call has not ended; and both end.
 *
 * BUG=1: who fails does not fence. BUG=2: the sender looks at the fault before it says that it writes. BUG=3: who fails does
 * not wait for who writes. BUG=4: the sender takes an offer for any message. BUG=5: the receiver does not wait for the
 * sender's part. Each must be caught. */
#ifndef BUG
#define BUG 0
#endif
#define MESSAGES 3
#define NOTHING 255

mtype = {raise, put, answer, lower, mark};

byte wanted = 0;      /* 1 + the message's number */
byte place = NOTHING; /* the call whose memory it is */
byte lent = NOTHING;  /* the call that runs: its memory may be written to; MESSAGES: all are over */
bool fault = false;

/* The sender's stores, as all see them. */
byte marked = 0;
bool isDivided = false;
bool isWriting = false;
byte answered = 0;

chan buffer = [6] of {mtype, byte, bool};

/* The oldest store leaves the core. */
inline leave() {
  buffer?kind, value, flag;
  if
  :: kind == raise -> isWriting = true
  :: kind == lower -> isWriting = false
  :: kind == answer -> answered = value
  :: kind == mark ->
    marked = value;
    isDivided = flag
  :: kind == put -> assert(value == lent)
  fi
}

active proctype core() {
  mtype kind;
  byte value;
  bool flag;
end:
  do
  :: atomic { nempty(buffer) -> leave() }
  od
}

active proctype sender() {
  byte message, where;
  bool sees, writes;
  do
  :: message < MESSAGES ->
    writes = false;
    if
    :: wanted == message + 1 || (BUG == 4 && wanted > 0) ->
      where = place;
      sees = fault;
      buffer!raise(0, false);
      if
      :: BUG == 2
      :: else -> sees = fault
      fi;
      if
      :: sees -> buffer!lower(0, false)
      :: else -> writes = true
      fi
    :: true /* the offer has not come here yet */
    fi;
    buffer!mark(message + 1, writes);
    if
    :: writes ->
      buffer!put(where, false);
      buffer!answer(message + 1, false);
      buffer!lower(0, false)
    :: else
    fi;
    /* Until its receiver is through, or has failed. */
    (lent != NOTHING && lent > message) || fault;
    if
    :: fault -> break
    :: else -> message++
    fi
  :: message == MESSAGES -> break
  od
}

active proctype receiver() {
  byte message;
  mtype kind;
  byte value;
  bool flag;
  do
  :: message < MESSAGES ->
    lent = message;
    wanted = 0;
    place = message;
    wanted = message + 1;
    if
    :: marked > message && (!isDivided || answered > message || BUG == 5) ->
      message++;
      lent = message
    :: fault = true;
      if
      :: BUG == 1
      :: else ->
        atomic {
          do
          :: nempty(buffer) -> leave()
          :: empty(buffer) -> break
          od
        }
      fi;
      if
      :: BUG == 3
      :: else -> !isWriting
      fi;
      lent = NOTHING;
      break
    fi
  :: message == MESSAGES -> break
  od
}
