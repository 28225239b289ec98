// libFuzzer entry: a topology file. What is read without an error is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "topology/hwloc_xml.h"
#include "topology/profile.h"
#include "topology/xml.h"

namespace tutti::topology {
namespace {

void read(std::string_view text) {
  const XmlLimits limits{.bytes = 64 << 10, .elements = 512};
  const auto description = parseXml(text, "fuzz.xml", limits);
  if (description.ok()) {
    const std::string written = writeXml(description.value());
    if (!parseXml(written, "again.xml").ok()) std::abort();
  }
  const auto document = XmlDocument::parse(text, "fuzz.xml", limits);
  if (!document.ok()) return;
  static_cast<void>(parseHwlocXml(*document.value()).ok());
  static_cast<void>(parseProfile(*document.value()).ok());
}

}  // namespace
}  // namespace tutti::topology

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::topology::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
