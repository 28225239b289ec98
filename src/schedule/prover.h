// Proves a schedule before it runs: executes it on symbols instead of numbers and shows that
//   - every output chunk of every rank ends as the collective says, each contribution in it exactly
//   once, and on every rank of
//     an all-reduce folded in the same order, so that all ranks hold the same bits;
//   - the post-operation is applied once to each finished reduction and never elsewhere;
//   - messages pair up in order, of equal length, on links that both ends know, and none is left
//   over;
//   - nothing is read before it is written, read after it was overwritten in place, or out of
//   range;
//   - the ranks cannot deadlock with the given number of slots a link.
// Pure, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/schedule.h"

namespace tutti::schedule {

struct ProofOptions {
  int32_t slotCount = 2;  // slots of every link
  int32_t pieces = 2;     // how often the programs run, back to back; one would do (prover.cc says
                          // why), more show it
  bool inPlace = false;   // input chunk c and output chunk c share memory on every rank that has
                          // both
};

// What the execution counted.
struct ProofReport {
  int64_t steps = 0;     // all ranks, all pieces
  int64_t messages = 0;  // all ranks, all pieces
  int32_t hops = 0;  // messages on the longest path of which each waits for the one before, in one
                     // piece
};

struct Proof {
  std::string refusal;  // why not, naming rank, step and what was wanted; empty when proved
  ProofReport report;
  bool ok() const { return refusal.empty(); }
};

Proof prove(const Schedule& schedule, const ProofOptions& options);

}  // namespace tutti::schedule
