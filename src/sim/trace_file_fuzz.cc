// libFuzzer entry: a trace. Whatever it says, it is a trace that is simulated or one error with its
// place.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/cluster_file.h"
#include "sim/trace_file.h"

namespace {

const tutti::sim::Cluster& cluster() {
  static const tutti::sim::Cluster made =
      tutti::sim::parseCluster("nodes: [{count: 2, machine: {ports: 1}, cpu_ranks: 2}]",
                               {.source = "c.yaml"}, nullptr)
          .value();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = tutti::sim::parseTrace(text, "fuzz.jsonl", cluster().rankCount());
  if (!trace.ok()) {
    if (trace.status().message().find("fuzz.jsonl:") == std::string_view::npos) std::abort();
    return 0;
  }
  const auto times = tutti::sim::simulateTrace(cluster(), trace.value(), {});
  if (!times.ok() && times.status().message().find("fuzz.jsonl:") == std::string_view::npos)
    std::abort();
  return 0;
}
