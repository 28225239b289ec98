#include "comm/tuning_file.h"

#include <fstream>
#include <sstream>

#include "comm/hash.h"

namespace tutti::comm {

Result<TuningFile> readTuningFile(const std::string& path) {
  if (path.empty()) return TuningFile{};
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file)
    return invalidUsage("TUTTI_TUNING_FILE={}: cannot be read; tutti tune writes such a file",
                        path);
  Result<plan::Tuning> tuning = plan::parseTuning(text.str(), path);
  if (!tuning.ok()) return invalidUsage("TUTTI_TUNING_FILE: {}", tuning.status().message());
  // GPU ranks choose by the kernels' catalogue, and the simulator keeps to what the project knows.
  if (tuning->gpu || tuning->simulator)
    return invalidUsage(
        "TUTTI_TUNING_FILE={}: has device {}; only cpu and sockets are read here, so leave it out",
        path, tuning->gpu ? "gpu" : "simulator");
  return TuningFile{.tuning = std::make_shared<const plan::Tuning>(std::move(tuning).value()),
                    .hash = hashOf(text.str())};
}

}  // namespace tutti::comm
