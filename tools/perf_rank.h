// What one rank does from joining to leaving: every row of the table, timed and checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "tools/perf_board.h"
#include "tools/perf_options.h"
#include "tools/perf_report.h"
#include "tools/perf_session.h"
#include "tools/perf_team.h"

namespace tutti::tools {

struct Call;
struct Expectation;
class PatternCache;

// Same for all ranks of a process.
struct RankContext {
  const PerfOptions& options;
  int rankCount;
  Board* board;  // null: the ranks share no memory
  std::optional<double> minBandwidth;
};

// Used by the rank's thread; progress() by any.
class RankRun {
 public:
  RankRun(const RankContext& context, int rank)
      : context_(context), rank_(rank), peerOptions_(context.options) {
    peerOptions_.registration = peerOptions_.peerRegistration.value_or(peerOptions_.registration);
  }

  // Measures everything. True: all elements right and fast enough.
  Result<bool> run();

  // Bytes of the row under way, for messages; -1: not there yet.
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  // A library's call of a row, in that library's own buffers.
  struct Side {
    Session& session;
    Invocation invocation;
    bool isInPlace = false;
  };
  // The ranks' seconds for one operation, by the choice of -a.
  struct Timing {
    double chosen = 0;
    double fastest = 0;
    double slowest = 0;
  };
  struct RowPlan {
    size_t bytes = 0;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    int root = 0;
    ncclRedOp_t libraryOp = ncclSum;
    ncclRedOp_t peerOp = ncclSum;  // the same of the other library
  };

  Status join();
  Result<std::unique_ptr<Session>> openSession(const Library& library, const PerfOptions& options);
  Result<std::vector<PlacedRank>> gatherPlaces();
  Status openReport();
  Status runCycle();
  Status runType(DataType type, ReduceOp op, size_t& rowNumber, size_t rowCount);
  Result<Row> measureRow(const RowPlan& plan, PatternCache& patterns);
  static Side makeSide(Session& session, const RowPlan& plan, const Call& call, bool isInPlace);
  Result<Measurement> measureSide(const Call& call, const Side& side, const Side* peer,
                                  PatternCache& patterns);
  Status warmUp(const Call& call, const Side& side, PatternCache& patterns);
  Status fillOnce(const Call& call, Side side, PatternCache& patterns);
  Result<int> iterationsFor(const Side& side);
  Result<Timing> timeSide(const Side& side, int iterations);
  Status timeRounds(const Side& side, const Side* peer, Measurement& measurement);
  Status prepare(const Call& call, const Side& side, const Expectation& expectation);
  Result<uint64_t> inspect(const Call& call, const Side& side,
                           const Expectation& expectation) const;
  Result<uint64_t> checkOnce(const Call& call, const Side& side, PatternCache& patterns);
  Result<int> chooseIterations(const Side& side);
  // This rank's seconds for so many iterations.
  Result<double> timeBlock(const Side& side, int iterations);
  Result<double> timeGraph(const Side& side, int calls);
  Status iterate(const Side& side);
  bool mayRunOnGpu() const;
  void pin() const;
  bool isChecked(const Side& side) const;

  RankContext context_;
  int rank_;
  PerfOptions peerOptions_;  // as the other library sees them
  Library library_ = Library::linked();
  Library peerLibrary_;  // empty without --lib
  std::atomic<int64_t> progress_{-1};
  std::unique_ptr<Session> session_;
  std::unique_ptr<Session> peer_;  // null without --lib
  std::unique_ptr<LibraryTeam> libraryTeam_;
  Team* team_ = nullptr;
  std::unique_ptr<PerfReport> report_;  // rank 0
  size_t largestBytes_ = 0;
  std::vector<const Session*> filled_;  // by fillOnce()
  uint64_t checkNumber_ = 0;            // shifts the values of each check
};

}  // namespace tutti::tools
