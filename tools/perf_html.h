// A run of `tutti perf` as one HTML page that needs nothing else: machine, command, versions, plots
// as inline SVG, and the table. Pure, but for gatherPageFacts().
#pragma once

#include <span>
#include <string>

#include "tools/perf_report.h"

namespace tutti::tools {

// What the page says besides the figures; plain text.
struct PageFacts {
  std::string date = {};  // UTC
  std::string machine = {};
  std::string commandLine = {};
};

// Of this process and this moment. What cannot be read is "unknown".
PageFacts gatherPageFacts();

struct PageContent {
  const PerfOptions& options;
  const RunInfo& info;
  std::span<const Row> rows;  // in the order measured
  Summary summary;
  PageFacts facts;
};

// Rows of one type, reduction and root make a card with a plot of time and one of bus bandwidth,
// each with a curve out of place and one in place. A size that was measured several times (-N)
// shows all its points, and the curve goes through their median.
std::string pageOf(const PageContent& content);

}  // namespace tutti::tools
