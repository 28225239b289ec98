// One interleaving is enough. The ranks are deterministic, wait for one step at a time, and every
// link has one sender and one receiver with its messages in order: a Kahn network with bounded
// queues. A step that can run stays able to run until it does, and running it disables no other, so
// whatever the order, the same steps run on the same values and the same ranks (if any) get stuck.
//
// One piece is enough for deadlock. Between the k-th message of a link and the (k + slots)-th the
// receiver's step must come before the sender's; like the order of a program and of a message, that
// never leads back to an earlier piece, as both ends of a link count the same messages a piece
// (structure.h) and a message is read in the piece it was sent in. So a cycle of waits lies within
// one piece, and all pieces are alike. Pieces in which some chunk has no bytes leave out whole
// steps, messages on both sides alike; what the rest has to wait for is a part of what it waited
// for before. Pieces share no memory.
//
// With steps that lag the same holds of turns, in each of which a rank runs every step once, each
// for its own piece: a message is read as many turns later as all of its link are. A sender may
// then wait for a slot that its receiver frees in a later turn, so a cycle of waits may span turns:
// one for each message that is read later at most, as it passes each message's two steps once, and
// those of a cycle have to run all. That many more pieces are run.
//
// A network that reduces is a rank like the others, but for its buffers: it has none. So it is
// taken to fold in the order of hosts; which order it takes in truth decides bits, the same for
// all.
//
// Ranks may mix calls in place and not: a rank in place that passes reads and writes the same
// values as one that is not, so the others cannot tell.
#include "schedule/prover.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/contract.h"
#include "schedule/structure.h"
#include "schedule/values.h"

namespace tutti::schedule {
namespace {

struct Message {
  ValueId value = kNoValue;
  int32_t piece = 0;
  int32_t position = 0;  // of the chunk in its block: decides the length
  int32_t hops = 0;      // messages on the longest path up to and with this one
};

// A queue of at most slotCount messages.
class Link {
 public:
  Link(Rank sender, Rank receiver) : sender_(sender), receiver_(receiver) {}

  Rank sender() const { return sender_; }
  Rank receiver() const { return receiver_; }
  size_t size() const { return messages_.size() - first_; }
  const Message& front() const { return messages_[first_]; }
  void push(const Message& message) { messages_.push_back(message); }
  void pop() {
    if (++first_ * 2 < messages_.size()) return;
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }

 private:
  Rank sender_;
  Rank receiver_;
  std::vector<Message> messages_;
  size_t first_ = 0;
};

constexpr size_t kNotBlocked = static_cast<size_t>(-1);

struct Cell {
  ValueId value = kNoValue;
  bool isFinal = false;
};

// A rank's work on one piece.
struct PieceState {
  std::vector<Cell> output;
  int32_t hops = 0;
};

struct RankState {
  std::vector<size_t> incoming;  // links, as receivesFrom
  std::vector<size_t> outgoing;  // links, as sendsTo
  ChunkRange outputRange;
  std::vector<PieceState> pieces;  // those at hand, in turn
  int32_t turn = 0;
  size_t step = 0;
  int32_t piece = 0;               // of the step
  size_t blockedOn = kNotBlocked;  // a link
  bool waitsForSlot = false;       // else for a message
  bool isQueued = false;
};

class Run {
 public:
  Run(const Schedule& schedule, const ProofOptions& options)
      : schedule_(schedule), options_(options), values_(schedule.rankCount) {}

  // False when refused.
  bool run();
  Proof take() && { return {.refusal = std::move(refusal_), .report = report_}; }

 private:
  const Program& program(Rank rank) const {
    return schedule_.programs[static_cast<size_t>(index(rank))];
  }
  RankState& state(Rank rank) { return states_[static_cast<size_t>(index(rank))]; }
  static PieceState& pieceOf(RankState& state) {
    return state.pieces[static_cast<size_t>(state.piece) % state.pieces.size()];
  }
  static Cell& cellOf(RankState& state, int32_t chunk) {
    return pieceOf(state).output[static_cast<size_t>(chunk - state.outputRange.first)];
  }
  bool isDone(Rank rank) { return state(rank).turn == pieces_ + program(rank).lag(); }

  void connect();
  int32_t laggingMessages() const;
  void enqueue(Rank rank);
  void wake(Rank rank, size_t link);
  bool advance(Rank rank);
  bool isReady(Rank rank, const Step& step);
  bool runStep(Rank rank, const Step& step);
  bool read(Rank rank, const Step& step, const Operand& source);
  bool receive(Rank rank, const Step& step, size_t link);
  void send(Rank rank, const Step& step, size_t link, ValueId value);
  bool write(Rank rank, int32_t chunk, ValueId value);
  bool isWanted(Rank rank, int32_t chunk, ValueId value) const;
  bool finishPiece(Rank rank);
  bool checkSameOnAllRanks(Rank rank, int32_t chunk, ValueId value);
  std::string describeWanted(Rank rank, int32_t chunk) const;
  std::string describeDeadlock();
  std::string describeWait(Rank rank);
  bool refuse(Rank rank, std::string_view reason);

  const Schedule& schedule_;
  const ProofOptions& options_;
  int32_t pieces_ = 0;
  ValueTable values_;
  std::vector<Link> links_;
  std::vector<RankState> states_;
  std::vector<Rank> runnable_;
  std::vector<ValueId> sources_;                      // scratch of runStep
  std::vector<std::pair<ValueId, Rank>> allReduced_;  // by chunk: the first rank's result
  ProofReport report_;
  std::string refusal_;
};

// The schedule's structure was checked, so both ends of every link are there.
void Run::connect() {
  std::unordered_map<uint64_t, size_t> known;
  const auto linkBetween = [&](Rank sender, Rank receiver) {
    const uint64_t key =
        (static_cast<uint64_t>(index(sender)) << 32) | static_cast<uint64_t>(index(receiver));
    const auto [slot, isNew] = known.try_emplace(key, links_.size());
    if (isNew) links_.emplace_back(sender, receiver);
    return slot->second;
  };
  states_.resize(schedule_.programs.size());
  for (int32_t i = 0; i < static_cast<int32_t>(states_.size()); ++i) {
    const Rank rank{i};
    RankState& mine = state(rank);
    for (const Rank peer : program(rank).receivesFrom) {
      mine.incoming.push_back(linkBetween(peer, rank));
    }
    for (const Rank peer : program(rank).sendsTo) {
      mine.outgoing.push_back(linkBetween(rank, peer));
    }
    mine.outputRange = outputChunks(schedule_, rank);
    mine.pieces.resize(static_cast<size_t>(program(rank).lag()) + 1);
    for (PieceState& piece : mine.pieces)
      piece.output.resize(static_cast<size_t>(mine.outputRange.size()));
  }
  if (schedule_.collective == Collective::kAllReduce) {
    allReduced_.resize(static_cast<size_t>(schedule_.chunkCount), {kNoValue, Rank{0}});
  }
}

// Messages a piece that are read in a later turn than they are sent in, on their links' first ones'
// word.
int32_t Run::laggingMessages() const {
  struct Ends {
    int32_t sent = -1, received = -1;  // the first one's lags
    int32_t count = 0;
  };
  std::vector<Ends> ends(links_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    const Program& program = schedule_.programs[i];
    for (const Step& step : program.steps) {
      for (const Operand& source : program.sources(step)) {
        if (source.place != Place::kLink) continue;
        Ends& link = ends[states_[i].incoming[static_cast<size_t>(source.index)]];
        if (link.count++ == 0) link.received = step.lag;
      }
      for (const Operand& destination : program.destinations(step)) {
        if (destination.place != Place::kLink) continue;
        Ends& link = ends[states_[i].outgoing[static_cast<size_t>(destination.index)]];
        if (link.sent < 0) link.sent = step.lag;
      }
    }
  }
  int32_t count = 0;
  for (const Ends& link : ends) count += link.sent < link.received ? link.count : 0;
  return count;
}

bool Run::run() {
  connect();
  pieces_ = options_.pieces + laggingMessages();
  for (auto rank = static_cast<int32_t>(states_.size()); rank-- > 0;) enqueue(Rank{rank});
  while (!runnable_.empty()) {
    const Rank rank = runnable_.back();
    runnable_.pop_back();
    state(rank).isQueued = false;
    if (!advance(rank)) return false;
  }
  for (int32_t rank = 0; rank < static_cast<int32_t>(states_.size()); ++rank) {
    if (isDone(Rank{rank})) continue;
    refusal_ = describeDeadlock();
    return false;
  }
  return true;
}

void Run::enqueue(Rank rank) {
  RankState& waking = state(rank);
  if (waking.isQueued) return;
  waking.isQueued = true;
  waking.blockedOn = kNotBlocked;
  runnable_.push_back(rank);
}

void Run::wake(Rank rank, size_t link) {
  if (state(rank).blockedOn == link) enqueue(rank);
}

// Runs the rank until it has to wait or has run all pieces.
bool Run::advance(Rank rank) {
  RankState& mine = state(rank);
  const auto& steps = program(rank).steps;
  while (!isDone(rank)) {
    if (mine.step == steps.size()) {
      mine.piece = mine.turn - program(rank).lag();
      if (mine.piece >= 0 && !finishPiece(rank)) return false;
      ++mine.turn;
      mine.step = 0;
      continue;
    }
    const Step& step = steps[mine.step];
    mine.piece = mine.turn - step.lag;
    if (mine.piece >= 0 && mine.piece < pieces_) {
      if (!isReady(rank, step)) return true;
      if (!runStep(rank, step)) return false;
    }
    ++mine.step;
  }
  return true;
}

bool Run::isReady(Rank rank, const Step& step) {
  RankState& mine = state(rank);
  const auto block = [&](size_t link, bool forSlot) {
    mine.blockedOn = link;
    mine.waitsForSlot = forSlot;
    return false;
  };
  for (const Operand& source : program(rank).sources(step)) {
    if (source.place != Place::kLink) continue;
    const size_t link = mine.incoming[static_cast<size_t>(source.index)];
    if (links_[link].size() == 0) return block(link, false);
  }
  for (const Operand& destination : program(rank).destinations(step)) {
    if (destination.place != Place::kLink) continue;
    const size_t link = mine.outgoing[static_cast<size_t>(destination.index)];
    if (links_[link].size() == static_cast<size_t>(options_.slotCount)) return block(link, true);
  }
  return true;
}

bool Run::runStep(Rank rank, const Step& step) {
  if (state(rank).piece < options_.pieces) ++report_.steps;
  sources_.clear();
  for (const Operand& source : program(rank).sources(step)) {
    if (!read(rank, step, source)) return false;
  }
  auto [value, refusal] = values_.fold(sources_, step.post);
  if (!refusal.empty()) return refuse(rank, refusal);
  for (const Operand& destination : program(rank).destinations(step)) {
    if (destination.place == Place::kLink) {
      send(rank, step, state(rank).outgoing[static_cast<size_t>(destination.index)], value);
    } else if (!write(rank, destination.index, value)) {
      return false;
    }
  }
  return true;
}

bool Run::read(Rank rank, const Step& step, const Operand& source) {
  RankState& mine = state(rank);
  if (source.place == Place::kLink) {
    return receive(rank, step, mine.incoming[static_cast<size_t>(source.index)]);
  }
  const bool hasOutput = mine.outputRange.contains(source.index);
  const ValueId written = hasOutput ? cellOf(mine, source.index).value : kNoValue;
  if (source.place == Place::kOutput) {
    if (written == kNoValue) {
      return refuse(rank, fmt::format("reads output chunk {} before it is written", source.index));
    }
    sources_.push_back(written);
    return true;
  }
  if (options_.inPlace && written != kNoValue) {
    return refuse(rank, fmt::format("reads input chunk {}, which in place was overwritten with {}",
                                    source.index, values_.describe(written)));
  }
  sources_.push_back(values_.raw({rank, source.index}));
  return true;
}

bool Run::receive(Rank rank, const Step& step, size_t link) {
  RankState& mine = state(rank);
  const Message message = links_[link].front();
  const Rank sender = links_[link].sender();
  if (message.piece != mine.piece) {
    return refuse(rank, fmt::format("receives {} of piece {} from rank {}, wants piece {}",
                                    values_.describe(message.value), message.piece, index(sender),
                                    mine.piece));
  }
  const int32_t position = positionInBlock(schedule_, step.chunk);
  if (message.position != position) {
    return refuse(rank, fmt::format("receives {} from rank {} with the length of chunk {} of its "
                                    "block, wants that of chunk {}",
                                    values_.describe(message.value), index(sender),
                                    message.position, position));
  }
  links_[link].pop();
  int32_t& hops = pieceOf(mine).hops;
  hops = std::max(hops, message.hops);
  if (mine.piece == 0) report_.hops = std::max(report_.hops, message.hops);
  sources_.push_back(message.value);
  wake(sender, link);
  return true;
}

void Run::send(Rank rank, const Step& step, size_t link, ValueId value) {
  RankState& mine = state(rank);
  links_[link].push({.value = value,
                     .piece = mine.piece,
                     .position = positionInBlock(schedule_, step.chunk),
                     .hops = pieceOf(mine).hops + 1});
  if (mine.piece < options_.pieces) ++report_.messages;
  wake(links_[link].receiver(), link);
}

bool Run::write(Rank rank, int32_t chunk, ValueId value) {
  Cell& cell = cellOf(state(rank), chunk);
  if (cell.isFinal) {
    return refuse(rank, fmt::format("overwrites output chunk {}, which was finished, with {}",
                                    chunk, values_.describe(value)));
  }
  cell = {.value = value, .isFinal = isWanted(rank, chunk, value)};
  return true;
}

bool Run::isWanted(Rank rank, int32_t chunk, ValueId value) const {
  return isReduction(schedule_.collective)
             ? values_.isFinished(value, chunk)
             : values_.isCopyOf(value, originOf(schedule_, rank, chunk));
}

// Compares the output with what the collective promises, and makes room for another piece.
bool Run::finishPiece(Rank rank) {
  RankState& mine = state(rank);
  for (int32_t chunk = mine.outputRange.first; chunk < mine.outputRange.end; ++chunk) {
    Cell& cell = cellOf(mine, chunk);
    if (!cell.isFinal) {
      refusal_ = fmt::format(
          "rank {} ends with output chunk {} {}, wants {}", index(rank), chunk,
          cell.value == kNoValue ? "never written" : "holding " + values_.describe(cell.value),
          describeWanted(rank, chunk));
      return false;
    }
    if (!allReduced_.empty() && !checkSameOnAllRanks(rank, chunk, cell.value)) return false;
    cell = {};
  }
  pieceOf(mine).hops = 0;
  return true;
}

bool Run::checkSameOnAllRanks(Rank rank, int32_t chunk, ValueId value) {
  auto& [first, firstRank] = allReduced_[static_cast<size_t>(chunk)];
  if (first == kNoValue) {
    first = value;
    firstRank = rank;
  }
  if (first == value) return true;
  refusal_ = fmt::format(
      "rank {} folds chunk {} in another order than rank {}, so that their bits may differ",
      index(rank), chunk, index(firstRank));
  return false;
}

std::string Run::describeWanted(Rank rank, int32_t chunk) const {
  if (isReduction(schedule_.collective)) {
    return fmt::format("chunk {} of all {} ranks with the post-operation", chunk,
                       schedule_.rankCount);
  }
  const Contribution origin = originOf(schedule_, rank, chunk);
  return fmt::format("rank {}'s chunk {}", index(origin.rank), origin.chunk);
}

std::string Run::describeWait(Rank rank) {
  const RankState& mine = state(rank);
  const Link& link = links_[mine.blockedOn];
  if (mine.waitsForSlot) {
    return fmt::format("rank {} step {} waits for a free slot on link {}->{}", index(rank),
                       mine.step, index(link.sender()), index(link.receiver()));
  }
  return fmt::format("rank {} step {} waits for a message from rank {}", index(rank), mine.step,
                     index(link.sender()));
}

// Who waits for whom. Both ends of a link count the same messages, so a rank that waits for a
// message or a slot waits for a rank that has not finished, and following them ends in a circle.
std::string Run::describeDeadlock() {
  Rank rank{0};
  while (isDone(rank)) rank = Rank{index(rank) + 1};
  std::vector<Rank> path;
  auto circle = path.end();
  while ((circle = std::find(path.begin(), path.end(), rank)) == path.end()) {
    path.push_back(rank);
    const RankState& mine = state(rank);
    const Link& link = links_[mine.blockedOn];
    rank = mine.waitsForSlot ? link.receiver() : link.sender();
  }
  std::string waits;
  std::string cycle;
  for (auto member = circle; member != path.end(); ++member) {
    waits += describeWait(*member) + "; ";
    cycle += fmt::format("{}->", index(*member));
  }
  return fmt::format("deadlock with {} slots a link: {}cycle {}{}", options_.slotCount, waits,
                     cycle, index(*circle));
}

bool Run::refuse(Rank rank, std::string_view reason) {
  const size_t step = state(rank).step;
  refusal_ = fmt::format("rank {} step {} ({}): {}", index(rank), step,
                         describe(program(rank), program(rank).steps[step]), reason);
  return false;
}

}  // namespace

Proof prove(const Schedule& schedule, const ProofOptions& options) {
  if (options.slotCount < 1 || options.pieces < 1) {
    return {.refusal = fmt::format("cannot prove with {} slots and {} pieces, wants one at least",
                                   options.slotCount, options.pieces),
            .report = {}};
  }
  if (std::string refusal = checkStructure(schedule); !refusal.empty()) {
    return {.refusal = std::move(refusal), .report = {}};
  }
  Run run(schedule, options);
  run.run();
  return std::move(run).take();
}

}  // namespace tutti::schedule
