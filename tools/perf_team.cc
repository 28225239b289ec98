#include "tools/perf_team.h"

#include <cstring>

namespace tutti::tools {

Status LibraryTeam::barrier(int rank) {
  Result<std::vector<double>> all = gather(rank, 0);
  return all.ok() ? Status() : all.takeStatus();
}

Result<std::vector<double>> LibraryTeam::gather(int /*rank*/, double value) {
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> bytes,
                   session_.gather(std::as_bytes(std::span(&value, 1))));
  std::vector<double> values(bytes.size() / sizeof value);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace tutti::tools
