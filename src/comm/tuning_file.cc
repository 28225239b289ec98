#include "comm/tuning_file.h"

#include "base/units.h"
#include "base/whole_file.h"
#include "comm/hash.h"

namespace tutti::comm {

Result<TuningFile> readTuningFile(const std::string& path) {
  constexpr size_t kMostBytes = 4_MiB;
  if (path.empty()) return TuningFile{};
  const Result<std::string> text = readWholeFile(path, kMostBytes);
  if (!text.ok() || text.value().size() > kMostBytes)
    return invalidUsage("TUTTI_TUNING_FILE={}: cannot be read{}{}; tutti tune writes such a file",
                        path, text.ok() ? ": more than 4 MiB" : ": ",
                        text.ok() ? "" : text.status().message());
  Result<plan::Tuning> tuning = plan::parseTuning(text.value(), path);
  if (!tuning.ok()) return invalidUsage("TUTTI_TUNING_FILE: {}", tuning.status().message());
  // GPU ranks choose by the kernels' catalogue, and the simulator keeps to what the project knows.
  if (tuning->gpu || tuning->simulator)
    return invalidUsage(
        "TUTTI_TUNING_FILE={}: has device {}; only cpu and sockets are read here, so leave it out",
        path, tuning->gpu ? "gpu" : "simulator");
  return TuningFile{.tuning = std::make_shared<const plan::Tuning>(std::move(tuning).value()),
                    .hash = hashOf(text.value())};
}

}  // namespace tutti::comm
