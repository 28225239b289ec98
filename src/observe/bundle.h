// Bundle: all that can be known of a hang without stopping anybody, in one tar: for whoever looks
// at it later, elsewhere. docs/TROUBLESHOOTING.md says what lies in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "observe/examination.h"
#include "observe/link_state.h"

namespace tutti::observe {

struct BundleInput {
  std::string cause;               // one line: who asked for it, and why
  std::vector<Examination> found;  // the communicators
  std::vector<LinkState> links{};  // of this process's ranks; none where it has none
  std::vector<int32_t> processes;  // to report on
  std::string settings;            // in effect in this process; empty where it has none
  int64_t time = 0;                // seconds since 1970
};

// What each rank does and waits for, as in the archive's ranks.txt.
std::string rankTable(std::span<const Examination> found);

// The archive. Reads /proc, so up to some ms a process.
std::string makeBundle(const BundleInput& input);

// The processes of the ranks that the findings name as guilty, and `own`: each once. Of all ranks
// it would be too much for every one of a big host's processes to report.
std::vector<int32_t> processesToBlame(std::span<const Examination> found, int32_t own);
// Of all ranks, those that have ended too.
std::vector<int32_t> processesOf(std::span<const Examination> found);

// "tutti-JOB-HOST-PID", fit for a file's name whatever the job is called.
std::string bundleStem(std::string_view job, int32_t processId);

// Writes FOLDER/STEM.tar, or STEM-2.tar and so on where that is taken, and gives its path. It
// appears there whole, readable by its owner alone, or not at all. Not logged.
Result<std::string> writeBundle(const std::string& folder, const std::string& stem,
                                std::string_view archive);

}  // namespace tutti::observe
