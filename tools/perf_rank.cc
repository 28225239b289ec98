#include "tools/perf_rank.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/clock.h"
#include "tools/perf_check.h"

namespace tutti::tools {
namespace {

constexpr double kNanoseconds = 1e9;

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}
double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double choose(TimeChoice choice, const std::vector<double>& seconds) {
  switch (choice) {
    case TimeChoice::kRank0: return seconds.front();
    case TimeChoice::kAverage:
      return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
             static_cast<double>(seconds.size());
    case TimeChoice::kMinimum: return smallest(seconds);
    case TimeChoice::kMaximum: return largest(seconds);
  }
  return 0;
}

std::vector<int> rootsOf(const PerfOptions& options, int rankCount) {
  if (!hasRoot(options.operation)) return {0};
  if (options.root != kAllRoots) return {options.root};
  std::vector<int> roots(static_cast<size_t>(rankCount));
  std::iota(roots.begin(), roots.end(), 0);
  return roots;
}

std::vector<ReduceOp> opsOf(const PerfOptions& options) {
  if (!isReduction(options.operation)) return {ReduceOp::kSum};
  return options.ops;
}

}  // namespace

Result<bool> RankRun::run() {
  pin();
  TUTTI_TRY(join());
  TUTTI_TRY(openReport());
  const PerfOptions& options = context_.options;
  TUTTI_TRY_ASSIGN(const std::vector<size_t> sizes, listSizes(options));
  size_t elementBytes = 1;
  for (DataType type : options.types) elementBytes = std::max(elementBytes, sizeOf(type));
  largestBytes_ = sizes.back();
  TUTTI_TRY(session_->allocate(largestBytes_, options.misalignElements * elementBytes));
  if (peer_ != nullptr)
    TUTTI_TRY(peer_->allocate(largestBytes_, options.misalignElements * elementBytes));
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) {
    TUTTI_TRY(runCycle());
  }
  double isGood = 1;
  if (report_ != nullptr) {
    TUTTI_TRY(report_->finish(context_.minBandwidth));
    const Summary summary = report_->summary(context_.minBandwidth);
    isGood = summary.wrong == 0 && !summary.isBelowMinimum ? 1 : 0;
  }
  TUTTI_TRY_ASSIGN(const std::vector<double> verdicts, team_->gather(rank_, isGood));
  if (peer_ != nullptr) TUTTI_TRY(peer_->close());
  TUTTI_TRY(session_->close());
  return bool{verdicts.front() != 0};
}

Status RankRun::runCycle() {
  const PerfOptions& options = context_.options;
  const std::vector<ReduceOp> ops = opsOf(options);
  TUTTI_TRY_ASSIGN(const std::vector<size_t> sizes, listSizes(options));
  const size_t rootCount = rootsOf(options, context_.rankCount).size();
  const size_t rowCount = sizes.size() * options.types.size() * ops.size() * rootCount;
  size_t rowNumber = 0;
  for (DataType type : options.types) {
    for (ReduceOp op : ops) TUTTI_TRY(runType(type, op, rowNumber, rowCount));
  }
  return {};
}

Status RankRun::runType(DataType type, ReduceOp op, size_t& rowNumber, size_t rowCount) {
  const PerfOptions& options = context_.options;
  ValueSpec spec{.type = type, .op = {}, .rankCount = context_.rankCount, .seed = options.seed};
  if (isReduction(options.operation)) spec.op = op;
  PatternCache patterns(spec);
  TUTTI_TRY_ASSIGN(const ncclRedOp_t number, session_->openOp(op, type, preMulScalar(spec, rank_)));
  ncclRedOp_t peerNumber = ncclSum;
  if (peer_ != nullptr) {
    TUTTI_TRY_ASSIGN(peerNumber, peer_->openOp(op, type, preMulScalar(spec, rank_)));
  }
  TUTTI_TRY_ASSIGN(const std::vector<size_t> sizes, listSizes(options));
  for (int root : rootsOf(options, context_.rankCount)) {
    for (size_t bytes : sizes) {
      ++rowNumber;
      progress_.store(static_cast<int64_t>(bytes), std::memory_order_relaxed);
      if (report_ != nullptr) report_->showProgress(rowNumber, rowCount, bytes);
      const RowPlan plan{.bytes = bytes,
                         .type = type,
                         .op = op,
                         .root = root,
                         .libraryOp = number,
                         .peerOp = peerNumber};
      TUTTI_TRY_ASSIGN(const Row row, measureRow(plan, patterns));
      if (report_ != nullptr) report_->add(row);
    }
  }
  if (peer_ != nullptr) TUTTI_TRY(peer_->closeOp(op, peerNumber));
  return session_->closeOp(op, number);
}

RankRun::Side RankRun::makeSide(Session& session, const RowPlan& plan, const Call& call,
                                bool isInPlace) {
  const size_t elementBytes = sizeOf(plan.type);
  Side side{.session = session, .invocation = {}, .isInPlace = isInPlace};
  std::byte* recv = session.recvBuffer().place();
  std::byte* send = session.sendBuffer().place();
  if (isInPlace) {
    send = recv + call.shape.sendOffset * elementBytes;
    recv = recv + call.shape.recvOffset * elementBytes;
  }
  side.invocation = {.operation = call.operation,
                     .send = send,
                     .recv = recv,
                     .count = call.shape.paramCount,
                     .type = plan.type,
                     .op = plan.libraryOp,
                     .root = plan.root};
  return side;
}

Result<Row> RankRun::measureRow(const RowPlan& plan, PatternCache& patterns) {
  const Operation operation = context_.options.operation;
  const size_t elementBytes = sizeOf(plan.type);
  Call call{.operation = operation, .shape = {}, .rank = rank_, .root = plan.root};
  call.shape = shapeOf(operation, plan.bytes, elementBytes, context_.rankCount, rank_);
  Row row{.bytes = call.shape.bufferCount * elementBytes,
          .count = call.shape.paramCount,
          .type = plan.type,
          .op = {},
          .root = {},
          .outOfPlace = {},
          .inPlace = {}};
  if (isReduction(operation)) row.op = plan.op;
  if (hasRoot(operation)) row.root = plan.root;
  for (const bool isInPlace : {false, true}) {
    const Side side = makeSide(*session_, plan, call, isInPlace);
    std::optional<Side> peer;
    if (peer_ != nullptr) {
      peer.emplace(makeSide(*peer_, plan, call, isInPlace));
      peer->invocation.op = plan.peerOp;
    }
    TUTTI_TRY_ASSIGN(Measurement measurement,
                     measureSide(call, side, peer ? &*peer : nullptr, patterns));
    const Bandwidth bandwidth =
        bandwidthOf(operation, row.bytes, context_.rankCount, measurement.seconds);
    measurement.algorithmGBs = bandwidth.algorithm;
    measurement.busGBs = bandwidth.bus;
    (isInPlace ? row.inPlace : row.outOfPlace) = measurement;
  }
  return row;
}

// A rank that sends to the next what it is receiving from the previous into: nobody can say which
// of the two is sent, so this one is timed and not checked.
bool RankRun::isChecked(const Side& side) const {
  return context_.options.checks > 0 &&
         !(side.isInPlace && side.invocation.operation == Operation::kSendRecv);
}

// Values of the longest row in both buffers, for all rows: where none is checked, filling 1 GB for
// each would take longer than its calls.
Status RankRun::fillOnce(const Call& call, Side side, PatternCache& patterns) {
  if (std::ranges::find(filled_, &side.session) != filled_.end()) return {};
  filled_.push_back(&side.session);
  Call longest = call;
  longest.shape = shapeOf(call.operation, largestBytes_, sizeOf(side.invocation.type),
                          context_.rankCount, rank_);
  side.isInPlace = false;
  TUTTI_TRY(prepare(longest, side, expect(longest, patterns, 0)));
  side.isInPlace = true;
  return prepare(longest, side, expectInPlace(longest, patterns, 0));
}

Status RankRun::warmUp(const Call& call, const Side& side, PatternCache& patterns) {
  if (context_.options.checks == 0) {
    TUTTI_TRY(fillOnce(call, side, patterns));
  } else {
    const Expectation first =
        side.isInPlace ? expectInPlace(call, patterns, 0) : expect(call, patterns, 0);
    TUTTI_TRY(prepare(call, side, first));
  }
  for (int i = 0; i < context_.options.warmups; ++i)
    TUTTI_TRY(side.session.start(side.invocation, 1));
  return side.session.finish();
}

Result<int> RankRun::iterationsFor(const Side& side) {
  constexpr int kGraphCalls = 20;
  const int asked = context_.options.iterations;
  if (context_.options.graphLaunches > 0) return asked == 0 ? kGraphCalls : int{asked};
  if (asked == 0) return chooseIterations(side);
  return int{asked};
}

Result<RankRun::Timing> RankRun::timeSide(const Side& side, int iterations) {
  const PerfOptions& options = context_.options;
  const bool isGraph = options.graphLaunches > 0;
  TUTTI_TRY_ASSIGN(const double own,
                   isGraph ? timeGraph(side, iterations) : timeBlock(side, iterations));
  const double operations =
      static_cast<double>(iterations) * (isGraph ? options.graphLaunches : 1) * options.aggregate;
  TUTTI_TRY_ASSIGN(const std::vector<double> seconds, team_->gather(rank_, own / operations));
  return Timing{.chosen = choose(options.timeChoice, seconds),
                .fastest = smallest(seconds),
                .slowest = largest(seconds)};
}

// One time alone; beside another library the medians of several, in turn, so that what else the
// machine does falls on both.
Status RankRun::timeRounds(const Side& side, const Side* peer, Measurement& measurement) {
  constexpr size_t kRounds = 5;
  TUTTI_TRY_ASSIGN(const int iterations, iterationsFor(side));
  int peerIterations = 0;
  if (peer != nullptr) {
    TUTTI_TRY_ASSIGN(peerIterations, iterationsFor(*peer));
  }
  std::vector<Timing> own;
  std::vector<Timing> theirs;
  for (size_t round = 0; round < (peer == nullptr ? 1 : kRounds); ++round) {
    TUTTI_TRY_ASSIGN(const Timing timing, timeSide(side, iterations));
    own.push_back(timing);
    if (peer == nullptr) continue;
    TUTTI_TRY_ASSIGN(const Timing other, timeSide(*peer, peerIterations));
    theirs.push_back(other);
  }
  const auto median = [](std::vector<Timing>& timings) {
    const auto middle = timings.begin() + static_cast<std::ptrdiff_t>(timings.size() / 2);
    std::ranges::nth_element(timings, middle, {}, &Timing::chosen);
    return *middle;
  };
  const Timing timing = median(own);
  measurement.iterations = iterations * std::max(1, context_.options.graphLaunches);
  measurement.seconds = timing.chosen;
  measurement.fastestSeconds = timing.fastest;
  measurement.slowestSeconds = timing.slowest;
  if (peer != nullptr) measurement.peerSeconds = median(theirs).chosen;
  return {};
}

Result<Measurement> RankRun::measureSide(const Call& call, const Side& side, const Side* peer,
                                         PatternCache& patterns) {
  const PerfOptions& options = context_.options;
  TUTTI_TRY(warmUp(call, side, patterns));
  if (peer != nullptr) TUTTI_TRY(warmUp(call, *peer, patterns));
  Measurement measurement;
  TUTTI_TRY(timeRounds(side, peer, measurement));
  if (!isChecked(side)) return measurement;
  uint64_t wrong = 0;
  for (int i = 0; i < options.checks; ++i) {
    TUTTI_TRY_ASSIGN(const uint64_t ownWrong, checkOnce(call, side, patterns));
    TUTTI_TRY_ASSIGN(const std::vector<double> all,
                     team_->gather(rank_, static_cast<double>(ownWrong)));
    for (const double count : all) wrong += static_cast<uint64_t>(count);
  }
  measurement.wrong = wrong;
  return measurement;
}

Status RankRun::prepare(const Call& call, const Side& side, const Expectation& expectation) {
  const size_t elementBytes = sizeOf(side.invocation.type);
  const size_t recvCount = side.isInPlace ? call.shape.bufferCount : call.shape.recvCount;
  const size_t recvBytes = recvCount * elementBytes;
  const size_t sendBytes = call.shape.sendCount * elementBytes;
  fillGuards(side.session.recvBuffer().whole(), recvBytes);
  fillGuards(side.session.sendBuffer().whole(), sendBytes);
  const std::span<std::byte> recv = side.session.recvBuffer().data(recvBytes);
  const std::span<std::byte> send = side.session.sendBuffer().data(sendBytes);
  poison(recv);
  for (const Segment& segment : expectation.sent) {
    fillSegment(side.isInPlace ? recv : send, segment);
  }
  return side.session.upload(std::max(recvBytes, sendBytes));
}

Result<uint64_t> RankRun::inspect(const Call& call, const Side& side,
                                  const Expectation& expectation) const {
  const size_t elementBytes = sizeOf(side.invocation.type);
  const size_t recvCount = side.isInPlace ? call.shape.bufferCount : call.shape.recvCount;
  const size_t recvBytes = recvCount * elementBytes;
  const size_t sendBytes = call.shape.sendCount * elementBytes;
  TUTTI_TRY(side.session.download(std::max(recvBytes, sendBytes)));
  uint64_t wrong = countGuardErrors(side.session.recvBuffer().whole(), recvBytes);
  wrong += countGuardErrors(side.session.sendBuffer().whole(), sendBytes);
  for (const Segment& segment : expectation.received) {
    wrong += countWrong(side.session.recvBuffer().data(recvBytes), segment, elementBytes);
  }
  if (side.isInPlace) return uint64_t{wrong};
  for (const Segment& segment : expectation.sent) {
    wrong += countWrong(side.session.sendBuffer().data(sendBytes), segment, elementBytes);
  }
  return uint64_t{wrong};
}

Result<uint64_t> RankRun::checkOnce(const Call& call, const Side& side, PatternCache& patterns) {
  constexpr size_t kPhaseStep = 4099;  // prime, so that each of many checks has its own phase
  const size_t phase = (++checkNumber_ * kPhaseStep) % kPeriod;
  const Expectation expectation =
      side.isInPlace ? expectInPlace(call, patterns, phase) : expect(call, patterns, phase);
  TUTTI_TRY(prepare(call, side, expectation));
  TUTTI_TRY(side.session.start(side.invocation, 1));
  TUTTI_TRY(side.session.finish());
  return inspect(call, side, expectation);
}

Status RankRun::iterate(const Side& side) {
  const PerfOptions& options = context_.options;
  if (options.blocking != Blocking::kEachCall) {
    TUTTI_TRY(side.session.start(side.invocation, options.aggregate));
  } else {
    for (int i = 0; i < options.aggregate; ++i) {
      TUTTI_TRY(side.session.start(side.invocation, 1));
      TUTTI_TRY(side.session.finish());
      TUTTI_TRY(team_->barrier(rank_));
    }
  }
  if (options.blocking != Blocking::kEachIteration) return {};
  TUTTI_TRY(side.session.finish());
  return team_->barrier(rank_);
}

Result<double> RankRun::timeBlock(const Side& side, int iterations) {
  if (context_.options.blocking != Blocking::kNoBarrier) TUTTI_TRY(team_->barrier(rank_));
  const Instant start = steadyClock().now();
  for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate(side));
  TUTTI_TRY(side.session.finish());
  const Nanoseconds span = steadyClock().now() - start;
  return std::max(static_cast<double>(span.count()), 1.0) / kNanoseconds;
}

// This rank's seconds for the replays of a graph of `calls` calls, after one that is not counted.
Result<double> RankRun::timeGraph(const Side& side, int calls) {
  TUTTI_TRY(side.session.capture(side.invocation, context_.options.aggregate, calls));
  // A graph that is instantiated beside a running one may wait for that, which waits for this
  // rank's where they share a GPU: 12 ranks of one H200 never came out of it.
  TUTTI_TRY(team_->barrier(rank_));
  TUTTI_TRY(side.session.replay());
  TUTTI_TRY(side.session.finish());
  TUTTI_TRY(team_->barrier(rank_));
  const Instant start = steadyClock().now();
  for (int i = 0; i < context_.options.graphLaunches; ++i) TUTTI_TRY(side.session.replay());
  TUTTI_TRY(side.session.finish());
  const Nanoseconds span = steadyClock().now() - start;
  return std::max(static_cast<double>(span.count()), 1.0) / kNanoseconds;
}

// Enough to fill the time asked for; all ranks come to the same number, since they decide by the
// slowest of them.
Result<int> RankRun::chooseIterations(const Side& side) {
  constexpr int kFewest = 3;
  // A GPU's launch queue holds some thousand; once it was full, each launch took 300 µs, whichever
  // the library (2026-11-21, 2 H200, driver 580).
  const int most = side.session.gpu() < 0 ? 10'000'000 : 500;
  constexpr int kGrowth = 4;
  constexpr double kTrialSeconds = 0.002;
  double seconds = 0;
  int iterations = 1;
  for (;; iterations *= kGrowth) {
    TUTTI_TRY_ASSIGN(const double own, timeBlock(side, iterations));
    TUTTI_TRY_ASSIGN(const std::vector<double> all, team_->gather(rank_, own));
    seconds = largest(all);
    if (seconds >= kTrialSeconds || iterations >= most / kGrowth) break;
  }
  const double wanted = context_.options.minSeconds / (seconds / iterations);
  return static_cast<int>(std::clamp<double>(wanted, kFewest, most));
}

}  // namespace tutti::tools
