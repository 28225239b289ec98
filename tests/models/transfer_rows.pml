/* How a warp sends rows to a warp of another rank (src/kernels/cuda/transfer_rows.cuh): MESSAGES messages, each of 1 to MOST
 * rows, through a ring of PLACES.
 *
 *   proctype sender, receiver   RowTransfer::send, RowTransfer::receive, message after message
 *   taken                       GpuRowRing::taken
 *
 * A receiver looks at BATCH places before it waits for the first of them, and says how many it has taken once in a batch.
 * What it says comes at any later time: the sender sees the last or an older count.
 *
 * Claims: a row is never written over one that has not been read; a receiver finds the row awaited or an older one; and
 * both end.
 *
 * BUG=1: the sender waits for nothing. BUG=2: the receiver says a row too many. BUG=3: it says so at a message's end alone.
 * Each must be caught. */
#ifndef BUG
#define BUG 0
#endif
#define MESSAGES 3
#define MOST 6
#define PLACES 4
#define BATCH 2

byte rows[MESSAGES];  /* the same on both sides */
byte held[PLACES];    /* the row's number; 0: none yet */
bool isRead[PLACES];
byte told = 0;        /* by the receiver */
byte taken = 0;       /* as it has come to the sender */

active proctype wire() {
end:
  do
  :: atomic { taken < told -> taken = told }
  :: atomic { taken + 1 < told -> taken = taken + 1 }
  od
}

proctype sender() {
  byte message, row, count;
  do
  :: message < MESSAGES ->
    row = 0;
    do
    :: row < rows[message] ->
      (BUG == 1) || (taken + PLACES > count);
      atomic {
        assert(held[count % PLACES] == 0 || isRead[count % PLACES]);
        held[count % PLACES] = count + 1;
        isRead[count % PLACES] = false
      }
      count++;
      row++
    :: row == rows[message] -> break
    od;
    message++
  :: message == MESSAGES -> break
  od
}

proctype receiver() {
  byte message, row, count, batch;
  do
  :: message < MESSAGES ->
    row = 0;
    do
    :: row < rows[message] ->
      batch = (rows[message] - row < BATCH -> rows[message] - row : BATCH);
      row = row + batch;
      do
      :: batch > 0 ->
        if
        :: BUG == 2 -> told = count + 2
        :: else
        fi;
        atomic {
          held[count % PLACES] >= count + 1 ->
          assert(held[count % PLACES] == count + 1);
          isRead[count % PLACES] = true
        }
        count++;
        batch--
      :: batch == 0 -> break
      od;
      if
      :: BUG == 3 && row < rows[message]
      :: else -> told = count
      fi
    :: row == rows[message] -> break
    od;
    message++
  :: message == MESSAGES -> break
  od
}

init {
  byte i, row_count;
  do
  :: i < MESSAGES ->
    select(row_count : 1 .. MOST);
    rows[i] = row_count;
    i++
  :: i == MESSAGES -> break
  od;
  atomic {
    run sender();
    run receiver()
  }
}
