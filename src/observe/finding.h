// Finding: what is wrong with the ranks of one board, for people: pure, from what they wrote and
// what the system says of their processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/diagnosis.h"

namespace tutti::observe {

struct Finding {
  bool isWrong = false;
  bool isLate = false;        // a living rank holds up the others: only time tells slow from stuck
  std::string verdict;        // one sentence, or a sentence and a table
  int32_t guilty = -1;        // a rank, or -1 when nobody alone is
  std::string lastOperation;  // of the guilty rank
  std::string activity;       // of the guilty rank, where it is outside the library
  std::vector<std::string> waits;  // who waits for whom, from the first to the one that holds it up
  std::string next;                // what to do
};

struct Evidence {
  std::vector<RankView> ranks;          // by rank
  std::vector<ProcessState> states;     // as ranks
  std::vector<std::string> activities;  // as ranks, see activityOf(); or none
  Verdict verdict;                      // code kOk: none was given
  int64_t now = 0;                      // nanoseconds of the monotonic clock
};

Finding find(const Evidence& evidence);

// From several looks at one board, the oldest first; at least one. A rank that holds up the others
// in most of them while operations go on is slow, not stuck.
Finding findOverTime(const std::vector<Evidence>& looks);

}  // namespace tutti::observe
