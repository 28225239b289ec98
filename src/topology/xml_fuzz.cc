// libFuzzer entry: any text as a topology file, through graph and paths, and back out. Build with
// clang -fsanitize=fuzzer,address; seeds: tests/golden/topologies.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/paths.h"
#include "topology/topology.h"
#include "topology/xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tutti::topology::Description;
  using tutti::topology::parseXml;
  using tutti::topology::Topology;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const tutti::Result<Description> description = parseXml(text, "fuzz", {.elements = 1000});
  if (!description.ok()) return 0;
  const tutti::Result<Description> again =
      parseXml(tutti::topology::writeXml(description.value()), "again");
  if (!again.ok() || !(again.value() == description.value())) std::abort();
  const tutti::Result<Topology> topology = tutti::topology::buildTopology(description.value());
  if (topology.ok() && topology.value().nodes.size() < 100)
    static_cast<void>(tutti::topology::computePaths(topology.value()));
  return 0;
}
