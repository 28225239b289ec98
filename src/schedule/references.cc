#include "schedule/references.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

// By rank: how many of its steps are known to be done.
using VectorClock = std::vector<int32_t>;

// A chunk of one rank's memory. In place, a chunk of the input and the same chunk of the output are
// one.
using Cell = std::pair<Place, int32_t>;

struct Message {
  VectorClock sent;
  std::optional<size_t> referenceAt;  // in the sender's references; none: must bring a copy
};

struct ReferenceState {
  Cell cell;
  size_t sentByStep = 0;
  int32_t reader = 0;
  int32_t readAtStep = -1;  // the reader's clock once it has read; -1: not yet in this run
};

struct RankRun {
  size_t step = 0;
  VectorClock clock;
  std::vector<ReferenceState> references;
  std::vector<uint8_t> isReferable;  // by step
};

class Check {
 public:
  Check(const Schedule& schedule, bool inPlace) : schedule_(schedule), inPlace_(inPlace) {}

  void run() {
    const auto count = static_cast<size_t>(schedule_.rankCount);
    for (const Program& program : schedule_.programs) {
      ranks_.push_back({.clock = VectorClock(count),
                        .references = {},
                        .isReferable = std::vector<uint8_t>(program.steps.size(), 1)});
    }
    bool moved = true;
    while (moved) {
      moved = false;
      for (int32_t rank = 0; rank < schedule_.rankCount; ++rank) {
        while (advance(rank)) moved = true;
      }
    }
  }

  // Of the first step that must not refer.
  const std::string& reason() const { return reason_; }
  std::vector<uint8_t> takeSteps(Rank rank) {
    return std::move(ranks_[static_cast<size_t>(index(rank))].isReferable);
  }

  std::vector<uint8_t> answeredSteps(Rank rank) const {
    const RankRun& run = ranks_[static_cast<size_t>(index(rank))];
    std::vector<uint8_t> answered(run.isReferable.size(), 0);
    for (const ReferenceState& reference : run.references) answered[reference.sentByStep] = 1;
    for (const ReferenceState& reference : run.references) {
      if (!isKnownRead(run, reference)) answered[reference.sentByStep] = 0;
    }
    return answered;
  }

 private:
  static bool isKnownRead(const RankRun& run, const ReferenceState& reference) {
    return reference.readAtStep >= 0 &&
           run.clock[static_cast<size_t>(reference.reader)] >= reference.readAtStep;
  }

  Cell cellOf(const Operand& operand) const {
    return {inPlace_ ? Place::kOutput : operand.place, operand.index};
  }

  // Runs the rank's next step; false when it has none or must wait for a message.
  bool advance(int32_t rank) {
    const Program& program = schedule_.programs[static_cast<size_t>(rank)];
    RankRun& run = ranks_[static_cast<size_t>(rank)];
    if (run.step == program.steps.size()) return false;
    const Step& step = program.steps[run.step];
    for (const Operand& source : program.sources(step)) {
      if (source.place == Place::kLink &&
          queue(program.receivesFrom[static_cast<size_t>(source.index)], rank).empty())
        return false;
    }
    ++run.clock[static_cast<size_t>(rank)];
    for (const Operand& source : program.sources(step)) {
      if (source.place == Place::kLink)
        read(rank, program.receivesFrom[static_cast<size_t>(source.index)]);
    }
    for (const Operand& destination : program.destinations(step)) {
      if (destination.place == Place::kOutput) checkWrite(rank, program, step, destination);
    }
    send(rank, program, step);
    ++run.step;
    return true;
  }

  void read(int32_t rank, Rank from) {
    auto& waiting = queue(from, rank);
    const Message message = std::move(waiting.front());
    waiting.pop_front();
    VectorClock& clock = ranks_[static_cast<size_t>(rank)].clock;
    for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], message.sent[i]);
    RankRun& sender = ranks_[static_cast<size_t>(index(from))];
    if (!message.referenceAt) return;
    sender.references[*message.referenceAt].readAtStep = clock[static_cast<size_t>(rank)];
  }

  // A copy onto itself, as in place all-gathers have, changes nothing.
  void checkWrite(int32_t rank, const Program& program, const Step& step,
                  const Operand& destination) {
    const auto from = program.sources(step);
    const bool isSame =
        from.size() == 1 && from[0].place != Place::kLink && cellOf(from[0]) == cellOf(destination);
    if (isSame) return;
    RankRun& run = ranks_[static_cast<size_t>(rank)];
    for (const ReferenceState& reference : run.references) {
      if (reference.cell != cellOf(destination)) continue;
      if (isKnownRead(run, reference)) continue;
      refuse(rank, reference.sentByStep,
             fmt::format("rank {} step {} overwrites chunk {} that rank {} may still have to read",
                         rank, run.step, destination.index, reference.reader));
    }
  }

  void refuse(int32_t rank, size_t step, std::string reason) {
    ranks_[static_cast<size_t>(rank)].isReferable[step] = 0;
    if (reason_.empty()) reason_ = std::move(reason);
  }

  // What outgoing links would refer to, if the step has its result in a user buffer: for a copy the
  // original, which lives as long as the copy or longer.
  std::optional<Cell> contentOf(const Program& program, const Step& step) const {
    const auto from = program.sources(step);
    if (from.size() == 1 && from[0].place != Place::kLink && !step.post) return cellOf(from[0]);
    for (const Operand& destination : program.destinations(step)) {
      if (destination.place == Place::kOutput) return cellOf(destination);
    }
    return std::nullopt;
  }

  void send(int32_t rank, const Program& program, const Step& step) {
    RankRun& run = ranks_[static_cast<size_t>(rank)];
    const std::optional<Cell> content = contentOf(program, step);
    for (const Operand& destination : program.destinations(step)) {
      if (destination.place != Place::kLink) continue;
      const Rank to = program.sendsTo[static_cast<size_t>(destination.index)];
      Message message{.sent = run.clock, .referenceAt = std::nullopt};
      if (content) {
        message.referenceAt = run.references.size();
        run.references.push_back({.cell = *content, .sentByStep = run.step, .reader = index(to)});
      } else {
        refuse(rank, run.step,
               fmt::format("rank {} step {} sends what lies in no user buffer", rank, run.step));
      }
      queue(Rank{rank}, index(to)).push_back(std::move(message));
    }
  }

  std::deque<Message>& queue(Rank from, int32_t to) { return queues_[{index(from), to}]; }

  const Schedule& schedule_;
  const bool inPlace_;
  std::vector<RankRun> ranks_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Message>> queues_;
  std::string reason_;
};

}  // namespace

std::string whyNotReferable(const Schedule& schedule, bool inPlace) {
  Check check(schedule, inPlace);
  check.run();
  return check.reason();
}

std::vector<uint8_t> referableSteps(const Schedule& schedule, Rank rank, bool inPlace) {
  Check check(schedule, inPlace);
  check.run();
  return check.takeSteps(rank);
}

std::vector<uint8_t> answeredSteps(const Schedule& schedule, Rank rank) {
  Check check(schedule, false);
  check.run();
  return check.answeredSteps(rank);
}

bool isReferable(const Algorithm& algorithm) {
  switch (algorithm.collective) {
    case Collective::kAllReduce: return algorithm.name == "twoshot";
    case Collective::kReduceScatter: return algorithm.name == "direct";
    case Collective::kReduce: return algorithm.name == "direct";
    case Collective::kAllToAll: return !algorithm.relays;
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv: return true;
  }
  return false;
}

}  // namespace tutti::schedule
