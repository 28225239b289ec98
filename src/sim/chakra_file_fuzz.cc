// libFuzzer entry: a Chakra execution trace of one of two ranks. It is read and simulated, or one
// error names the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/chakra_file.h"
#include "sim/cluster_file.h"

namespace {

const tutti::sim::Cluster& cluster() {
  static const tutti::sim::Cluster made =
      tutti::sim::parseCluster("nodes: [{count: 2, machine: {ports: 1}, cpu_ranks: 1}]",
                               {.source = "c.yaml"}, nullptr)
          .value();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tutti::Rank;
  if (size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kEmpty("\0", 1);
  tutti::sim::Trace groups;
  groups.groups.push_back({"world", {Rank{0}, Rank{1}}});
  const auto trace =
      tutti::sim::parseChakra({{.rank = Rank{0}, .source = "fuzz.0", .text = text},
                               {.rank = Rank{1}, .source = "fuzz.1", .text = kEmpty}},
                              std::move(groups));
  const auto times = trace.ok() ? tutti::sim::simulateTrace(cluster(), trace.value(), {})
                                : tutti::Result<tutti::sim::TraceTimes>(trace.status().clone());
  if (!times.ok() && times.status().message().find("fuzz.") == std::string_view::npos) std::abort();
  return 0;
}
