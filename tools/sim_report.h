// What `tutti sim` prints: a table, JSON, or a page with pictures.
#pragma once

#include <span>
#include <string>

#include "tools/sim_run.h"

namespace tutti::tools {

std::string sizeName(uint64_t bytes);  // "64K", "1G"

void printSimTable(const SimSweep& sweep, std::span<const SimRow> rows);
void printSimJson(const SimSweep& sweep, std::span<const SimRow> rows);
// One page that needs nothing else: bus bandwidth curves, the busiest links, one rank's time line.
std::string simPage(const SimSweep& sweep, std::span<const SimRow> rows, const SimDetail& detail,
                    const std::string& commandLine);

}  // namespace tutti::tools
