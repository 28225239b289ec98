// Changes sound schedules at random. What the prover then still accepts must be right: it is run on
// numbers, by an interpreter that shares no code with the prover, in random interleavings.
//
// Accepted changes are harmless ones: an exchange of two steps that do not depend on each other
// (the order in which a root receives, a local copy earlier or later), of a step's destinations, of
// a chunk number by one of equal length, the fold order where one rank alone holds the result.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"
#include "schedule/test_algorithms.h"

namespace tutti::schedule {
namespace {

uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  return value ^ (value >> 27);
}

// A number and the history of its rounding: a fold in another order has another history.
struct Number {
  uint64_t sum = 0;
  uint64_t history = 0;
  bool isRaw = false;  // read from the input: scaled, not yet rounded
  bool operator==(const Number&) const = default;
};

constexpr uint64_t kDivisor = 0x9e3779b97f4a7c15;  // odd: applied twice, it shows

struct RunOptions {
  size_t slotCount = 2;
  bool inPlace = false;
  int32_t pieces = 2;
};

// Runs a schedule on random inputs; throws when it is wrong.
class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const RunOptions& options, SeededRng& rng)
      : schedule_(schedule), options_(options), rng_(rng) {
    const size_t n = schedule.programs.size();
    cursors_.resize(n);
    for (int32_t piece = 0; piece < options.pieces; ++piece) {
      memory_.emplace_back(n);
      for (auto& rank : memory_.back()) {
        for (int32_t chunk = 0; chunk < schedule.chunkCount; ++chunk) {
          rank.input.push_back(rng.next());
          rank.output.push_back({.sum = rng.next(), .history = rng.next()});
          rank.overwritten.push_back(false);
        }
      }
    }
  }

  void run() {
    while (true) {
      std::vector<size_t> ready;
      for (size_t rank = 0; rank < cursors_.size(); ++rank) {
        if (!isDone(rank) && isReady(rank)) ready.push_back(rank);
      }
      if (ready.empty()) break;
      runStep(ready[rng_.below(ready.size())]);
    }
    for (size_t rank = 0; rank < cursors_.size(); ++rank) require(isDone(rank), "stuck");
    for (const auto& [ends, queue] : links_) require(queue.empty(), "message left over");
    for (int32_t piece = 0; piece < options_.pieces; ++piece) checkPiece(piece);
  }

 private:
  struct Cursor {
    size_t step = 0;
    int32_t piece = 0;
  };
  struct RankMemory {
    std::vector<uint64_t> input;  // chunks of the whole vector, also where the rank has fewer
    std::vector<Number> output;
    std::vector<bool> overwritten;
  };
  struct Message {
    Number number;
    int32_t position;
  };

  static void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(what);
  }

  int32_t perBlock() const { return schedule_.chunkCount / schedule_.blockCount; }
  bool isDone(size_t rank) const {
    return schedule_.programs[rank].steps.empty() || cursors_[rank].piece == options_.pieces;
  }
  const Step& stepOf(size_t rank) const {
    return schedule_.programs[rank].steps.at(cursors_[rank].step);
  }
  std::vector<Message>& incoming(size_t rank, int32_t link) {
    const Rank peer = schedule_.programs[rank].receivesFrom.at(static_cast<size_t>(link));
    return links_[{static_cast<size_t>(index(peer)), rank}];
  }
  std::vector<Message>& outgoing(size_t rank, int32_t link) {
    const Rank peer = schedule_.programs[rank].sendsTo.at(static_cast<size_t>(link));
    return links_[{rank, static_cast<size_t>(index(peer))}];
  }
  const Operand& operand(size_t rank, size_t at) const {
    return schedule_.programs[rank].operands.at(stepOf(rank).firstOperand + at);
  }

  bool isReady(size_t rank) {
    const Step& step = stepOf(rank);
    for (size_t i = 0; i < size_t{step.sourceCount} + step.destinationCount; ++i) {
      const Operand& link = operand(rank, i);
      if (link.place != Place::kLink) continue;
      const bool isSource = i < step.sourceCount;
      if (isSource && incoming(rank, link.index).empty()) return false;
      if (!isSource && outgoing(rank, link.index).size() == options_.slotCount) return false;
    }
    return true;
  }

  Number read(size_t rank, const Operand& source) {
    RankMemory& memory = memory_[static_cast<size_t>(cursors_[rank].piece)][rank];
    const auto chunk = static_cast<size_t>(source.index);
    switch (source.place) {
      case Place::kOutput: return memory.output.at(chunk);
      case Place::kInput:
        if (options_.inPlace && memory.overwritten.at(chunk)) {
          const Number& held = memory.output.at(chunk);
          return {.sum = held.sum * scaleOf(rank), .history = held.history, .isRaw = true};
        }
        return {.sum = memory.input.at(chunk) * scaleOf(rank),
                .history = mix(memory.input.at(chunk)),
                .isRaw = true};
      case Place::kLink: break;
    }
    auto& queue = incoming(rank, source.index);
    require(!queue.empty(), "two messages of a link in one step");
    const Message message = queue.front();
    queue.erase(queue.begin());
    require(message.position == stepOf(rank).chunk % perBlock(), "length");
    return message.number;
  }

  void runStep(size_t rank) {
    const Step& step = stepOf(rank);
    Number result = read(rank, operand(rank, 0));
    if (step.sourceCount == 1 && result.isRaw) result.history = mix(result.history + 1);
    for (size_t i = 1; i < step.sourceCount; ++i) {
      const Number next = read(rank, operand(rank, i));
      result.sum += next.sum;
      result.history = mix(result.history * 31 + next.history);
    }
    result.isRaw = false;
    if (step.post) result = {.sum = result.sum * kDivisor, .history = mix(result.history + 2)};
    for (size_t i = step.sourceCount; i < size_t{step.sourceCount} + step.destinationCount; ++i) {
      const Operand& destination = operand(rank, i);
      if (destination.place == Place::kLink) {
        outgoing(rank, destination.index).push_back({result, step.chunk % perBlock()});
      } else {
        RankMemory& memory = memory_[static_cast<size_t>(cursors_[rank].piece)][rank];
        memory.output.at(static_cast<size_t>(destination.index)) = result;
        memory.overwritten.at(static_cast<size_t>(destination.index)) = true;
      }
    }
    advance(rank);
  }

  void advance(size_t rank) {
    Cursor& cursor = cursors_[rank];
    if (++cursor.step < schedule_.programs[rank].steps.size()) return;
    cursor.step = 0;
    ++cursor.piece;
  }

  // Pre-multiplication, a scalar a rank; data that only moves is not scaled.
  uint64_t scaleOf(size_t rank) const {
    return isReduction(schedule_.collective) ? 2 * rank + 3 : 1;
  }

  void checkPiece(int32_t piece) {
    const auto& ranks = memory_[static_cast<size_t>(piece)];
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (size_t chunk = 0; chunk < ranks[rank].output.size(); ++chunk) {
        const std::optional<uint64_t> wanted = wantedAt(ranks, rank, chunk);
        if (!wanted) continue;
        require(ranks[rank].output[chunk].sum == *wanted, "wrong result");
        if (schedule_.collective != Collective::kAllReduce) continue;
        require(ranks[rank].output[chunk] == ranks[0].output[chunk], "bits differ");
      }
    }
  }

  // Nothing where the rank's output does not reach.
  std::optional<uint64_t> wantedAt(const std::vector<RankMemory>& ranks, size_t rank,
                                   size_t chunk) const {
    const auto root = static_cast<size_t>(index(schedule_.root));
    const auto sender = static_cast<size_t>(index(schedule_.sender));
    const size_t owner = chunk / static_cast<size_t>(perBlock());  // where blocks are a rank's
    uint64_t sum = 0;
    for (size_t i = 0; i < ranks.size(); ++i) sum += ranks[i].input[chunk] * scaleOf(i);
    sum *= kDivisor;
    switch (schedule_.collective) {
      case Collective::kAllReduce: return sum;
      case Collective::kReduce: return rank == root ? std::optional(sum) : std::nullopt;
      case Collective::kReduceScatter: return owner == rank ? std::optional(sum) : std::nullopt;
      case Collective::kAllGather: return ranks[owner].input[chunk];
      case Collective::kBroadcast: return ranks[root].input[chunk];
      case Collective::kAllToAll: return ranks[chunk].input[rank];
      case Collective::kGather:
        return rank == root ? std::optional(ranks[chunk].input[chunk]) : std::nullopt;
      case Collective::kScatter:
        return chunk == rank ? std::optional(ranks[root].input[chunk]) : std::nullopt;
      case Collective::kSend:
      case Collective::kRecv:
        return rank == root ? std::optional(ranks[sender].input[chunk]) : std::nullopt;
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  RunOptions options_;
  SeededRng& rng_;
  std::vector<std::vector<RankMemory>> memory_;  // by piece and rank
  std::vector<Cursor> cursors_;
  std::map<std::pair<size_t, size_t>, std::vector<Message>> links_;
};

// What is wrong with the run; empty when nothing is.
std::string runOnNumbers(const Schedule& schedule, const RunOptions& options, SeededRng& rng) {
  try {
    Interpreter(schedule, options, rng).run();
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "";
}

enum class Mutation : uint8_t {
  kDropStep,
  kDuplicateStep,
  kSwapSteps,
  kFlipPost,
  kChangeChunk,
  kChangeOperandIndex,
  kChangeOperandPlace,
  kSwapOperands,
  kDropSource,
  kChangePeer,
  kSwapPrograms,
};
constexpr int kMutationCount = 11;
constexpr int kMutantCount = 3000;

size_t pick(SeededRng& rng, size_t count) { return static_cast<size_t>(rng.below(count)); }
int32_t pickChunk(SeededRng& rng, const Schedule& schedule) {
  return static_cast<int32_t>(pick(rng, static_cast<size_t>(schedule.chunkCount) + 1));
}

void mutateStep(Program& program, Mutation mutation, SeededRng& rng) {
  auto& steps = program.steps;
  const size_t at = pick(rng, steps.size());
  const auto position = steps.begin() + static_cast<std::ptrdiff_t>(at);
  if (mutation == Mutation::kDropStep) {
    steps.erase(position);
  } else if (mutation == Mutation::kDuplicateStep) {
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(pick(rng, steps.size() + 1)),
                 Step(*position));
  } else if (mutation == Mutation::kSwapSteps) {
    std::swap(*position, steps[pick(rng, steps.size())]);
  } else {
    position->post = !position->post;
  }
}

// Drops one source; the operands before it close up, so that the rest stay as they are.
void dropSource(Program& program, SeededRng& rng) {
  Step& step = program.steps[pick(rng, program.steps.size())];
  if (step.sourceCount < 2) return;
  const size_t dropped = pick(rng, step.sourceCount);
  for (size_t i = step.firstOperand + dropped; i > step.firstOperand; --i) {
    program.operands[i] = program.operands[i - 1];
  }
  ++step.firstOperand;
  if (--step.sourceCount == 1) step.fold = Fold::kCopy;
}

void mutateOperand(const Schedule& schedule, Program& program, Mutation mutation, SeededRng& rng) {
  auto& operands = program.operands;
  Operand& operand = operands[pick(rng, operands.size())];
  if (mutation == Mutation::kChangeOperandIndex) {
    operand.index = pickChunk(rng, schedule);
  } else if (mutation == Mutation::kChangeOperandPlace) {
    operand.place = static_cast<Place>(pick(rng, 3));
  } else {
    std::swap(operand, operands[pick(rng, operands.size())]);
  }
}

void mutate(Schedule& schedule, Mutation mutation, SeededRng& rng) {
  size_t rank = pick(rng, schedule.programs.size());
  while (schedule.programs[rank].steps.empty()) rank = (rank + 1) % schedule.programs.size();
  Program& program = schedule.programs[rank];
  switch (mutation) {
    case Mutation::kDropStep:
    case Mutation::kDuplicateStep:
    case Mutation::kSwapSteps:
    case Mutation::kFlipPost: mutateStep(program, mutation, rng); return;
    case Mutation::kChangeOperandIndex:
    case Mutation::kChangeOperandPlace:
    case Mutation::kSwapOperands: mutateOperand(schedule, program, mutation, rng); return;
    case Mutation::kDropSource: dropSource(program, rng); return;
    case Mutation::kChangeChunk:
      program.steps[pick(rng, program.steps.size())].chunk = pickChunk(rng, schedule);
      return;
    case Mutation::kChangePeer: {
      auto& peers = rng.below(2) == 0 ? program.sendsTo : program.receivesFrom;
      if (peers.empty()) return;
      peers[pick(rng, peers.size())] = Rank{static_cast<int32_t>(pick(rng, 6))};
      return;
    }
    case Mutation::kSwapPrograms:
      std::swap(program, schedule.programs[pick(rng, schedule.programs.size())]);
      return;
  }
}

struct Tally {
  int accepted = 0;
  int refused = 0;
  int refusedAndWrong = 0;  // the numbers showed it, too
};

class Mutants : public testing::TestWithParam<Algorithm> {};

TEST_P(Mutants, AreRefusedOrRunRightInAnyInterleaving) {
  const Algorithm& algorithm = GetParam();
  SeededRng rng(0x7475747469 + static_cast<uint64_t>(algorithm.collective));
  Tally tally;
  for (int i = 0; i < kMutantCount; ++i) {
    const auto n = static_cast<int32_t>(2 + pick(rng, 5));
    const auto ranks = static_cast<size_t>(n);
    Schedule schedule =
        makeSchedule(algorithm, {.rankCount = n,
                                 .root = Rank{static_cast<int32_t>(pick(rng, ranks))},
                                 .sender = Rank{static_cast<int32_t>(pick(rng, ranks))}});
    mutate(schedule, static_cast<Mutation>(i % kMutationCount), rng);
    const bool inPlace = rng.below(2) == 0;
    const auto slotCount = static_cast<int32_t>(1 + pick(rng, 3));
    const Proof proof = prove(schedule, {.slotCount = slotCount, .inPlace = inPlace});
    std::string fault;
    for (int run = 0; run < 3 && fault.empty(); ++run) {
      fault = runOnNumbers(schedule,
                           {.slotCount = static_cast<size_t>(slotCount), .inPlace = inPlace}, rng);
    }
    if (proof.ok()) {
      ASSERT_EQ(fault, "") << "mutant " << i << " of " << n << " ranks was accepted";
    }
    tally.accepted += proof.ok();
    tally.refused += !proof.ok();
    tally.refusedAndWrong += !proof.ok() && !fault.empty();
  }
  EXPECT_GT(tally.refused, kMutantCount / 2);
  EXPECT_GT(tally.accepted, 0);
  // The interpreter is no rubber stamp: it fails on nearly all that the prover refuses. The rest
  // are malformed in ways it does not look for (a write to the input) or wasteful (a copy made
  // twice).
  EXPECT_GT(tally.refusedAndWrong, tally.refused * 3 / 4);
}

TEST_P(Mutants, AreRefusedWhereverAStepIsMissing) {
  const Schedule sound = makeSchedule(GetParam(), {.rankCount = 4, .sender = Rank{2}});
  for (size_t rank = 0; rank < sound.programs.size(); ++rank) {
    for (size_t step = 0; step < sound.programs[rank].steps.size(); ++step) {
      Schedule mutant = sound;
      auto& steps = mutant.programs[rank].steps;
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
      EXPECT_FALSE(prove(mutant, {}).ok()) << "rank " << rank << " step " << step;
    }
  }
}

TEST_P(Mutants, AreRefusedWhereverThePostOperationIsTurnedOnOrOff) {
  const Schedule sound = makeSchedule(GetParam(), {.rankCount = 4, .sender = Rank{2}});
  for (size_t rank = 0; rank < sound.programs.size(); ++rank) {
    for (size_t step = 0; step < sound.programs[rank].steps.size(); ++step) {
      Schedule mutant = sound;
      bool& post = mutant.programs[rank].steps[step].post;
      post = !post;
      EXPECT_FALSE(prove(mutant, {}).ok()) << "rank " << rank << " step " << step;
    }
  }
}

TEST(Interpreter, AgreesWithTheProverOnSoundSchedules) {
  SeededRng rng(7);
  for (const Algorithm& algorithm : allAlgorithms()) {
    for (int32_t n = 1; n <= 9; ++n) {
      const Schedule schedule =
          makeSchedule(algorithm, {.rankCount = n, .root = Rank{n / 2}, .sender = Rank{n - 1}});
      for (const bool inPlace : {false, true}) {
        EXPECT_EQ(runOnNumbers(schedule, {.slotCount = 2, .inPlace = inPlace, .pieces = 3}, rng),
                  "")
            << name(algorithm.collective) << ' ' << algorithm.name << ' ' << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, Mutants, testing::ValuesIn(allAlgorithms()), algorithmTestName);

}  // namespace
}  // namespace tutti::schedule
