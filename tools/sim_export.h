// `tutti sim --export`: one call's flows, or its time line, in other tools' forms.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/sim_run.h"

namespace tutti::tools {

// "jsonl, simai, ..., chrome"
std::string exportNames();
// Of the row's played way. "-": standard output. Forms with a file a rank put ".RANK.et" behind the
// path.
Status exportRow(const SimSweep& sweep, const SimRow& row, const std::string& format,
                 const std::string& path);

}  // namespace tutti::tools
