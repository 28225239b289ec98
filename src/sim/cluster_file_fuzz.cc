// libFuzzer entry: a cluster file. Whatever it says, it is a cluster or one error with its place.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/cluster_file.h"

namespace tutti::sim {
namespace {

// What a file names is not read: only its own text is foreign here.
Result<topology::Description> readNothing(const std::string& topology, const std::string&) {
  return invalidArgument("{}: not here", topology);
}

// Large clusters take memory by their size, which is theirs to ask for; here they would only be
// slow.
bool isSmall(std::string_view text) {
  size_t digits = 0;
  for (const char each : text) {
    digits = each >= '0' && each <= '9' ? digits + 1 : 0;
    if (digits > 2) return false;
  }
  return text.size() < 4096;
}

}  // namespace
}  // namespace tutti::sim

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!tutti::sim::isSmall(text)) return 0;
  const auto cluster =
      tutti::sim::parseCluster(text, {.source = "fuzz.yaml"}, tutti::sim::readNothing);
  if (!cluster.ok()) {
    if (cluster.status().message().find("fuzz.yaml:") == std::string_view::npos) std::abort();
    return 0;
  }
  const int32_t last = cluster.value().rankCount() - 1;
  if (last > 0)
    static_cast<void>(
        cluster.value().route({.from = tutti::Rank{0}, .to = tutti::Rank{last}}).ok());
  return 0;
}
