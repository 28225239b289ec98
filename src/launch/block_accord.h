// From which long call on the ranks of a communicator save blocks, so that other kernels have
// multiprocessors meanwhile, or take them all again.
//
// Each rank's kernels tell it how many of their launches had to wait for multiprocessors; a rank
// whose launches often do proposes to save from a call on that nobody has come to. How many lanes a
// call has must be the same on all ranks, and ranks do not wait for each other on the host. So a
// proposal is one word that all share on their board, and whoever comes to its call before it is
// agreed refuses it.
//
// accord (of the board): call << 3 | saves << 2 | state.
// longCalls (of a rank's page): the call that it has come to << 1 | whether its GPU is busy, stored
// before it looks at the accord. While one is, nobody proposes to stop saving.
// The proposer puts its word there, then looks where the others are: all before that call: agreed.
// Both are sequentially consistent, so either it sees that a rank has come there, or that rank sees
// the word. A word that was agreed is replaced once all ranks are beyond its call.
#pragma once

#include <cstdint>

#include "observe/board.h"

namespace tutti::launch {

// One rank's side. One thread at a time.
class BlockAccord {
 public:
  // All ranks have to be on the board; while one is not, nothing is agreed.
  BlockAccord(observe::Board& board, int32_t rank) : board_(board), rank_(rank) {}

  // Before each long call, in the order of the calls: whether it saves blocks, on all ranks alike.
  // `starts`: as the rank's kernels tell (wire::GpuView::starts).
  bool enter(uint64_t starts);

 private:
  void settle(uint64_t word);
  bool judge(uint64_t starts);
  void propose(bool saves);
  template <typename Condition>
  bool areAll(const Condition& condition) const;

  observe::Board& board_;
  const int32_t rank_;
  uint64_t calls_ = 0;
  bool saves_ = false;
  uint64_t settled_ = 0;  // the last word that this rank has come to the call of
  // Launches before the ones that are judged next.
  uint32_t launchesBefore_ = 0;
  uint32_t lateBefore_ = 0;
  bool isBusy_ = false;  // other kernels have this rank's GPU
  // While it saves: launches in a row without others' kernels, and how many make the GPU quiet;
  // more each time, so that two states do not take turns for long.
  uint32_t quiet_ = 0;
  uint32_t quietWanted_ = 64;
};

}  // namespace tutti::launch
