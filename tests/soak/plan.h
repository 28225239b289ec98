// What all ranks of a soak do: a pure function of the seed, so every process works it out by itself
// and a failing seed replays.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::soak {

enum class Verb : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kBcast,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter,
  kExchange,  // sends and receives of any size between any two ranks, each rank's in one group
};

// A built-in operation, or kPreMulSum: a scalar for each rank.
enum class Fold : uint8_t { kSum, kProd, kMax, kMin, kAvg, kPreMulSum };

struct Call {
  uint64_t id = 0;  // the key of its data
  int team = 0;
  Verb verb = Verb::kAllReduce;
  ncclDataType_t type = ncclInt8;
  Fold fold = Fold::kSum;
  size_t count = 0;  // as the call takes it; kExchange: the most that goes from one to another
  int root = 0;
  bool inPlace = false;
  size_t shift = 0;  // elements by which the buffers miss their alignment
};

// The ranks of a communicator by their number in the first one, in order. Team 0 is everyone.
struct Team {
  std::vector<int> members;
  int placeOf(int rank) const;  // -1: not a member
  int size() const { return static_cast<int>(members.size()); }
};

enum class Death : uint8_t { kKill, kExit, kStop };

struct Action {
  enum class Kind : uint8_t {
    kCalls,    // `calls`, in order or as one group
    kSplit,    // of `team` into `children`
    kShrink,   // of `team` into children[0], nobody has failed
    kDestroy,  // of `team`
    kFreeze,   // process `victim` stands still for `delay`
    kAbort,    // rank `victim` aborts `team` while it is busy, then all do
    kRevoke,   // rank `victim` revokes `team` while it is busy, then all do; then a split of it
    kDeath,    // process `victim` goes, the others shrink `team` into children[0]
  };
  Kind kind = Kind::kCalls;
  uint64_t id = 0;
  std::vector<Call> calls;
  bool isGroup = false;
  bool usesStreams = false;
  int team = 0;
  std::vector<int> children;
  bool reversesKeys = false;  // kSplit
  bool finalizes = false;     // kDestroy: ncclCommFinalize first
  int victim = 0;
  int64_t delayUs = 0;
  Death death = Death::kKill;
};

// The life of one communicator of everyone and of what comes of it.
struct Round {
  int idCount = 1;  // > 1: ncclCommInitRankScalable
  std::vector<Team> teams;
  std::vector<Action> actions;
};

struct Plan {
  uint64_t seed = 0;
  std::vector<int> processOfRank;
  int processCount = 1;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<Round> rounds;
  bool repeats = false;  // the rounds are alike, so memory must not grow

  int rankCount() const { return static_cast<int>(processOfRank.size()); }
};

Plan makePlan(uint64_t seed);

std::string describe(const Call& call);
std::string describe(const Action& action);
// For the runner: {"processes": ..., "environment": {...}, ...}
std::string toJson(const Plan& plan);

}  // namespace tutti::soak
