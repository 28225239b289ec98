// What `tutti perf` prints: nccl-tests' table, and the same figures as JSON and CSV. Rank 0 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/perf_options.h"

namespace tutti::tools {

// One side of a row: out of place or in place.
struct Measurement {
  double seconds = 0;  // one operation, by the choice of -a
  double fastestSeconds = 0;
  double slowestSeconds = 0;
  int iterations = 0;
  double algorithmGBs = 0;
  double busGBs = 0;
  std::optional<uint64_t> wrong = {};      // elements; none: not checked
  std::optional<double> peerSeconds = {};  // of the library given by --lib

  // Above 1: the peer is slower.
  std::optional<double> ratio() const {
    if (!peerSeconds) return std::nullopt;
    return *peerSeconds / seconds;
  }
};

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  DataType type = DataType::kFloat32;
  std::optional<ReduceOp> op = {};
  std::optional<int> root = {};
  Measurement outOfPlace = {};
  Measurement inPlace = {};
};

struct PlacedRank {
  int rank = 0;
  int64_t pid = 0;
  std::string host = {};
  int gpu = -1;  // -1: a CPU rank
};

struct RunInfo {
  int rankCount = 1;
  int libraryVersion = 0;
  int peerVersion = 0;                  // 0: there is none
  GpuPath path = GpuPath::kUnknown;     // as the library says
  std::vector<PlacedRank> places = {};  // by rank
};

struct Summary {
  uint64_t wrong = 0;
  double averageBusGBs = 0;
  bool isBelowMinimum = false;
};

// The table's lines, without the newline.
std::string headerOf(const PerfOptions& options, const RunInfo& info);
std::string lineOf(const Row& row);
std::string footerOf(const PerfOptions& options, const Summary& summary);

// Writes as the rows come, so that an interrupted run leaves what it has measured. One thread.
class PerfReport {
 public:
  // kSystemError when a file cannot be made. REQUIRES: options outlives the report.
  static Result<std::unique_ptr<PerfReport>> open(const PerfOptions& options, const RunInfo& info);
  ~PerfReport();

  // A line on a terminal's standard error that the next one replaces; nothing elsewhere.
  void showProgress(size_t row, size_t rowCount, size_t bytes);
  void add(const Row& row);
  // kSystemError when a file could not be written. `minBandwidth` as it was applied.
  Status finish(const std::optional<double>& minBandwidth);
  // Of the rows so far.
  Summary summary(const std::optional<double>& minBandwidth) const;

 private:
  PerfReport(const PerfOptions& options, const RunInfo& info);
  void clearProgress();
  Status writeJson(const Summary& summary) const;
  Status writeHtml(const Summary& summary) const;

  const PerfOptions& options_;
  RunInfo info_;
  std::vector<Row> rows_;
  std::FILE* csv_ = nullptr;  // owned unless it is stdout
  bool printsTable_ = true;   // not while JSON or CSV take standard output
  bool showsProgress_ = false;
  bool hasProgress_ = false;
};

}  // namespace tutti::tools
