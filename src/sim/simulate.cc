#include "sim/simulate.h"

#include <algorithm>
#include <map>
#include <memory>

#include "sim/event_queue.h"
#include "sim/fluid.h"
#include "sim/simulate_state.h"

namespace tutti::sim {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Program;
using schedule::Step;

constexpr double kBytesPerUs = 1e3;  // at 1 GB/s
constexpr double kSameTimeUs = 1e-9;

CallPrices usualPrices(const Traffic& traffic, const Timing& timing) {
  const Method& method = traffic.method();
  const Collective collective = traffic.call().collective;
  return traffic.cluster().hasGpus()
             ? pricesFor({timing.system, collective, method.algorithm, method.protocol,
                          traffic.cluster().mostRanksPerNode()})
             : cpuPrices(collective, method.algorithm);
}

class Simulator {
 public:
  Simulator(const Traffic& traffic, const SimOptions& options)
      : traffic_(traffic),
        options_(options),
        prices_(options.prices ? *options.prices : usualPrices(traffic, options.timing)) {
    wireFactor_ = wireFactor(traffic.method().protocol);
    laneGbPerSecond_ = prices_.gbPerSecond / traffic.channelCount();
    slotCount_ = static_cast<uint32_t>(traffic.method().slotCount);
  }

  Result<SimResult> run() {
    TUTTI_TRY_ASSIGN(made_.classes,
                     classify(traffic_, {.laneGbPerSecond = laneGbPerSecond_ * wireFactor_,
                                         .onlyEnds = options_.fidelity == Fidelity::kLogGp}));
    prepare();
    const int64_t steps = stepCount();  // an event each at least
    if (steps > options_.mostEvents) return tooMany("at least", steps);
    for (size_t i = 0; i < walks_.size(); ++i) tryStart(static_cast<int32_t>(i));
    TUTTI_TRY(play());
    return finish();
  }

 private:
  // ---- preparation ---------------------------------------------------------------------------

  void prepare() {
    const std::vector<LaneClass>& lanes = made_.classes.lanes;
    // Rings' lanes differ in the numbers of their chunks only, so one program will do a channel.
    std::map<int32_t, size_t> ofChannel;
    for (const LaneClass& lane : lanes) {
      size_t which = programs_.size();
      if (traffic_.isRing()) which = ofChannel.try_emplace(lane.channel, which).first->second;
      if (which == programs_.size()) addProgram(traffic_.lane(lane.channel, lane.rank));
      programOf_.push_back(which);
    }
    for (size_t i = 0; i < lanes.size(); ++i) addWalks(static_cast<int32_t>(i));
    prepareEdges();
    prepareFlows();
    made_.linkWireBytes.resize(made_.classes.links.size());
    recorded_.resize(lanes.size(), -1);
    if (index(options_.timelineRank) >= 0) chooseRecorded();
  }

  // Rings' chunks are taken to be of one length, so that their lanes are alike; the last ones are
  // shorter in truth, or, of the shortest vectors, empty.
  void addProgram(Lane lane) {
    const auto chunks = static_cast<size_t>(lane.layout.chunksPerBlock);
    const size_t elements =
        traffic_.isRing() ? (lane.layout.blockElements + chunks - 1) / chunks : 0;
    programs_.push_back({.lane = std::move(lane), .ringChunkElements = elements});
  }

  void prepareEdges() {
    const double networkUs = networkHopUs(traffic_.cluster().hasGpus(), traffic_.method().protocol);
    for (const EdgeClass& edge : made_.classes.edges) {
      const double speed = made_.classes.lanes[static_cast<size_t>(edge.to)].speed;
      EdgeState& state = edges_.emplace_back();
      state.from = edge.from;
      state.to = edge.to;
      state.isBetweenNodes = edge.isBetweenNodes;
      state.delayUs = (edge.isBetweenNodes ? networkUs : prices_.hopUs / speed) + edge.latencyUs;
      state.count = edge.count;
    }
  }

  void prepareFlows() {
    std::vector<double> capacities;
    std::vector<FairShare::Flow> flows;
    for (const EdgeClass& edge : made_.classes.edges)
      flows.push_back({.most = edge.mostGbPerSecond * kBytesPerUs});
    for (const LinkClass& link : made_.classes.links) {
      for (const auto& [edge, count] : link.edges)
        flows[static_cast<size_t>(edge)].crossings.push_back(
            {static_cast<int32_t>(capacities.size()), static_cast<double>(count)});
      capacities.push_back(link.gbPerSecond * kBytesPerUs);
    }
    fluid_ = std::make_unique<Fluid>(std::move(capacities));
    for (FairShare::Flow& flow : flows) fluid_->add(std::move(flow));
  }

  void chooseRecorded() {
    for (int32_t channel = 0; channel < traffic_.channelCount(); ++channel) {
      const auto at =
          static_cast<size_t>(channel * traffic_.rankCount() + index(options_.timelineRank));
      const auto lane = static_cast<size_t>(made_.classes.laneClassOf[at]);
      if (recorded_[lane] < 0) recorded_[lane] = channel;
    }
  }

  // The ways up and down of each tree are walked side by side, as their links are links of their
  // own: one after the other, every piece would wait for the others' round trips.
  void addWalks(int32_t lane) {
    const size_t which = programOf_[static_cast<size_t>(lane)];
    const Program& program = *programs_[which].lane.program;
    const auto end = static_cast<uint32_t>(program.steps.size());
    const uint32_t length = traffic_.followsTrees() ? 1 : end;
    const LaneClass& it = made_.classes.lanes[static_cast<size_t>(lane)];
    const auto outgoing = static_cast<uint32_t>(edgesOfLanes_.size());
    const auto incoming = static_cast<uint32_t>(outgoing + it.outgoing.size());
    edgesOfLanes_.insert(edgesOfLanes_.end(), it.outgoing.begin(), it.outgoing.end());
    edgesOfLanes_.insert(edgesOfLanes_.end(), it.incoming.begin(), it.incoming.end());
    std::vector<int32_t> ofLane;
    for (uint32_t first = 0; first < end; first += length) {
      // A root sends down what its way up has finished: as many steps before as there are trees.
      const bool isDown = traffic_.followsTrees() && first >= end / 2 && end > 1;
      ofLane.push_back(static_cast<int32_t>(walks_.size()));
      walks_.push_back({.lane = lane,
                        .program = static_cast<uint32_t>(which),
                        .outgoing = outgoing,
                        .incoming = incoming,
                        .firstStep = first,
                        .endStep = first + length,
                        .tag = end > 1 && traffic_.followsTrees() ? first : 0,
                        .after = isDown ? ofLane[first - end / 2] : -1,
                        .step = first});
    }
    walksOf_.push_back(std::move(ofLane));
  }

  // Of all lanes that are walked, those that move anything.
  int64_t stepCount() const {
    std::vector<int64_t> byProgram;
    for (const LaneProgram& played : programs_) {
      int64_t& count = byProgram.emplace_back();
      for (const Step& step : played.lane.program->steps)
        for (size_t piece = 0; piece < played.lane.layout.pieceCount; ++piece)
          count += bytesOf(played, step, piece) > 0 ? 1 : 0;
    }
    int64_t count = 0;
    for (const size_t which : programOf_) count += byProgram[which];
    return count;
  }

  Status tooMany(std::string_view how, int64_t events) const {
    return invalidArgument(
        "{} on {} ranks: {} {} events, at most {} are simulated; {} of {} lanes differ, as their "
        "flows meet others on links; wanted fewer ranks or channels, fidelity loggp or the closed "
        "form",
        traffic_.method().algorithm, traffic_.rankCount(), how, events, options_.mostEvents,
        made_.classes.lanes.size(), made_.classes.laneCount);
  }

  // ---- steps ---------------------------------------------------------------------------------

  const LaneProgram& playedBy(const Walk& walk) const { return programs_[walk.program]; }
  const Lane& programOf(const Walk& walk) const { return playedBy(walk).lane; }
  const LaneClass& laneOf(const Walk& walk) const {
    return made_.classes.lanes[static_cast<size_t>(walk.lane)];
  }
  // The edge at a position of the walk's program.
  int32_t numberOf(uint32_t begin, int32_t position) const {
    return edgesOfLanes_[begin + static_cast<uint32_t>(position)];
  }
  EdgeState& edgeOf(int32_t number) { return edges_[static_cast<size_t>(number)]; }
  std::span<const Operand> operandsOf(const Walk& walk) const {
    return programOf(walk).program->allOperands(stepOf(walk));
  }
  const Step& stepOf(const Walk& walk) const { return programOf(walk).program->steps[walk.step]; }
  uint64_t bytesOf(const Walk& walk) const {
    return bytesOf(playedBy(walk), stepOf(walk), walk.piece);
  }
  uint64_t bytesOf(const LaneProgram& played, const Step& step, size_t piece) const {
    const auto& [lane, chunk] = played;
    if (!traffic_.isRing()) return lane.bytesOf(step.chunk, piece);
    const size_t start = piece * lane.layout.pieceElements;
    if (start >= chunk) return 0;
    return std::min(lane.layout.pieceElements, chunk - start) * lane.elementBytes;
  }
  bool isDone(const Walk& walk) const {
    if (walk.firstStep == walk.endStep) return true;
    return walk.piece == programOf(walk).layout.pieceCount;
  }

  void advance(Walk& walk) {
    if (++walk.step < walk.endStep) return;
    walk.step = walk.firstStep;
    ++walk.piece;
  }

  bool isReady(const Walk& walk) const {
    const Step& step = stepOf(walk);
    const std::span<const Operand> operands = operandsOf(walk);
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool isSource = i < step.sourceCount;
      if (operands[i].place != Place::kLink) {
        const bool isOwnResult = isSource && operands[i].place == Place::kOutput;
        if (isOwnResult && walk.after >= 0 &&
            walks_[static_cast<size_t>(walk.after)].piece <= walk.piece)
          return false;
        continue;
      }
      const int32_t which = numberOf(isSource ? walk.incoming : walk.outgoing, operands[i].index);
      const EdgeState& edge = edges_[static_cast<size_t>(which)];
      if (isSource ? edge.arrived[walk.tag] == edge.consumed[walk.tag]
                   : edge.posted[walk.tag] - edge.consumed[walk.tag] >= slotCount_)
        return false;
    }
    return true;
  }

  void tryStart(int32_t which) {
    Walk& walk = walks_[static_cast<size_t>(which)];
    while (!walk.isRunning && !isDone(walk)) {
      const uint64_t bytes = bytesOf(walk);
      if (bytes == 0) {  // left out on both sides
        advance(walk);
        continue;
      }
      if (!isReady(walk)) return;
      start(which, bytes);
    }
  }

  void start(int32_t which, uint64_t bytes) {
    Walk& walk = walks_[static_cast<size_t>(which)];
    const Step& step = stepOf(walk);
    walk.isRunning = true;
    walk.isLocalDone = false;
    walk.startUs = now_;
    walk.flowsLeft = 0;
    const double wire = static_cast<double>(wireBytes(traffic_.method().protocol, bytes));
    bool isCopied = false;  // into a slot of the port, or to its own output
    for (const Operand& operand : operandsOf(walk).subspan(step.sourceCount)) {
      if (operand.place != Place::kLink) {
        isCopied = true;
        continue;
      }
      const int32_t number = numberOf(walk.outgoing, operand.index);
      EdgeState& edge = edgeOf(number);
      ++edge.posted[walk.tag];
      made_.flows += edge.count;
      if (edge.isBetweenNodes) {
        isCopied = true;
        continue;
      }
      ++walk.flowsLeft;
      send(number, {.wire = wire, .tag = walk.tag, .walk = which});
    }
    walk.isLocalDone = !isCopied && walk.flowsLeft > 0;
    if (walk.isLocalDone) return;
    const double local = isCopied ? localUs(walk, bytes) : 0;
    push({.us = now_ + local, .kind = EventKind::kLocalEnd, .which = which});
  }

  // A write to the own output runs along with a flow and is twice as fast.
  double localUs(const Walk& walk, uint64_t bytes) const {
    constexpr double kLocalFactor = 2;
    const double gb =
        laneGbPerSecond_ * laneOf(walk).speed * (walk.flowsLeft > 0 ? kLocalFactor : 1);
    return static_cast<double>(bytes) / (gb * kBytesPerUs);
  }

  void endStep(int32_t which) {
    Walk& walk = walks_[static_cast<size_t>(which)];
    const Step& step = stepOf(walk);
    const uint64_t bytes = bytesOf(walk);
    const std::span<const Operand> operands = operandsOf(walk);
    record(walk, bytes);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].place != Place::kLink) continue;
      if (i < step.sourceCount) {
        EdgeState& edge = edgeOf(numberOf(walk.incoming, operands[i].index));
        const bool wasFull = edge.posted[walk.tag] - edge.consumed[walk.tag] >= slotCount_;
        ++edge.consumed[walk.tag];
        if (wasFull) wakeLane(edge.from);
        continue;
      }
      const int32_t number = numberOf(walk.outgoing, operands[i].index);
      if (!edgeOf(number).isBetweenNodes) continue;
      const double wire = static_cast<double>(wireBytes(traffic_.method().protocol, bytes));
      send(number, {.wire = wire, .tag = walk.tag});
    }
    walk.isRunning = false;
    advance(walk);
    wakeLane(walk.lane);
  }

  void wakeLane(int32_t lane) {
    const std::vector<int32_t>& walks = walksOf_[static_cast<size_t>(lane)];
    toStart_.insert(toStart_.end(), walks.begin(), walks.end());
  }

  void record(const Walk& walk, uint64_t bytes) {
    const int32_t channel = recorded_[static_cast<size_t>(walk.lane)];
    if (channel < 0) return;
    const Program& program = *programOf(walk).program;
    const Step& step = stepOf(walk);
    Span span{.startUs = walk.startUs,
              .endUs = now_,
              .channel = channel,
              .step = static_cast<int32_t>(walk.step),
              .piece = static_cast<int64_t>(walk.piece),
              .chunk = step.chunk,
              .bytes = bytes};
    const std::span<const Operand> operands = operandsOf(walk);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].place != Place::kLink) continue;
      const auto at = static_cast<size_t>(operands[i].index);
      if (i < step.sourceCount) {
        span.from = program.receivesFrom[at];
      } else {
        span.to = program.sendsTo[at];
      }
    }
    made_.timeline.push_back(span);
  }

  // ---- flows ---------------------------------------------------------------------------------

  // One message of an edge flows at a time, in the order of sending.
  void send(int32_t number, const Message& message) {
    EdgeState& edge = edgeOf(number);
    edge.queue.push(message);
    if (edge.queue.isOne()) startFlow(number);
  }

  void startFlow(int32_t number) {
    const double wire = edgeOf(number).queue.front().wire;
    fluid_->start(number, wire, now_);
    for (const FairShare::Crossing& each : fluid_->crossingsOf(number))
      made_.linkWireBytes[static_cast<size_t>(each.link)] += wire * each.count;
  }

  void endFlow(int32_t number) {
    EdgeState& edge = edgeOf(number);
    const Message message = edge.queue.front();
    edge.queue.pop();
    fluid_->stop(number);
    push({.us = now_ + edge.delayUs,
          .kind = EventKind::kArrival,
          .which = number,
          .version = message.tag});
    if (!edge.queue.empty()) startFlow(number);
    if (message.walk < 0) return;
    Walk& walk = walks_[static_cast<size_t>(message.walk)];
    if (--walk.flowsLeft == 0 && walk.isLocalDone) endStep(message.walk);
  }

  // Flows go on at their new rates.
  void reshare() {
    fluid_->settle(now_, [this](int32_t number, double endUs, uint32_t version) {
      push({.us = endUs, .kind = EventKind::kFlowEnd, .which = number, .version = version});
    });
  }

  // ---- time ----------------------------------------------------------------------------------

  void push(Event event) {
    event.order = nextOrder_++;
    events_.push(event);
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kLocalEnd: {
        Walk& walk = walks_[static_cast<size_t>(event.which)];
        walk.isLocalDone = true;
        if (walk.flowsLeft == 0) endStep(event.which);
        return;
      }
      case EventKind::kFlowEnd:
        if (fluid_->isCurrent(event.which, event.version)) endFlow(event.which);
        return;
      case EventKind::kArrival: {
        EdgeState& edge = edgeOf(event.which);
        const bool wasEmpty = edge.arrived[event.version] == edge.consumed[event.version];
        ++edge.arrived[event.version];
        if (wasEmpty) wakeLane(edge.to);
        return;
      }
    }
  }

  Status play() {
    settle();
    while (!events_.empty()) {
      now_ = events_.top().us;
      while (!events_.empty() && events_.top().us <= now_ + kSameTimeUs) {
        const Event event = events_.top();
        events_.pop();
        if (event.kind != EventKind::kFlowEnd || fluid_->isCurrent(event.which, event.version))
          ++made_.events;
        handle(event);
      }
      settle();
      if (made_.events > options_.mostEvents) return tooMany("more than", options_.mostEvents);
    }
    return {};
  }

  void settle() {
    while (!toStart_.empty()) {
      const int32_t walk = toStart_.back();
      toStart_.pop_back();
      tryStart(walk);
    }
    reshare();
  }

  Result<SimResult> finish() {
    for (const Walk& walk : walks_) {
      if (isDone(walk)) continue;
      const LaneClass& lane = laneOf(walk);
      return internalError("simulation: rank {} on channel {} stands at step {} of {}, piece {}",
                           index(lane.rank), lane.channel, walk.step, walk.endStep, walk.piece);
    }
    const Timing& timing = options_.timing;
    const LaunchCost launch = traffic_.cluster().hasGpus()
                                  ? launchCost(timing.system, timing.launch,
                                               traffic_.call().collective, traffic_.rankCount())
                                  : LaunchCost{};
    made_.us = std::max(now_ + prices_.fixedUs + launch.moreUs, launch.leastUs);
    return std::move(made_);
  }

  const Traffic& traffic_;
  const SimOptions& options_;
  const CallPrices prices_;
  double wireFactor_ = 1;
  double laneGbPerSecond_ = 0;
  uint32_t slotCount_ = 0;
  SimResult made_;
  std::vector<LaneProgram> programs_;
  std::vector<size_t> programOf_;  // by class of lane
  std::vector<Walk> walks_;
  std::vector<std::vector<int32_t>> walksOf_;  // by class of lane
  std::vector<EdgeState> edges_;               // by class of edge
  std::vector<int32_t> edgesOfLanes_;          // classes, a lane's outgoing, then its incoming
  std::unique_ptr<Fluid> fluid_;               // flows by class of edge
  std::vector<int32_t> recorded_;              // by class of lane: the channel shown; -1: not
  EventQueue<Event> events_;
  std::vector<int32_t> toStart_;
  uint64_t nextOrder_ = 0;
  double now_ = 0;
};

}  // namespace

std::string_view nameOf(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kClosed: return "closed";
    case Fidelity::kLogGp: return "loggp";
    case Fidelity::kFair: return "fair";
  }
  return "?";
}

Result<SimResult> simulate(const Traffic& traffic, const SimOptions& options) {
  return Simulator(traffic, options).run();
}

}  // namespace tutti::sim
