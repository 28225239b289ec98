#include "topology/registry.h"

#include <algorithm>

#include "topology/hwloc_xml.h"
#include "topology/profile.h"
#include "topology/readers/file/file.h"
#include "topology/readers/nvml/nvml.h"
#include "topology/readers/sysfs/sysfs.h"
#include "topology/simplify.h"
#include "topology/xml.h"

namespace tutti::topology {
namespace {

bool hasBareGpu(const std::vector<PciDevice>& devices) {
  return std::ranges::any_of(devices, [](const PciDevice& device) {
    constexpr uint32_t kClass3d = 0x0302;
    return (!device.gpu && device.deviceClass >> 8 == kClass3d) || hasBareGpu(device.children);
  });
}

// What the file says stays; only GPUs that are mere PCI devices are asked for.
Result<Description> completeFile(const DiscoverOptions& options) {
  TUTTI_TRY_ASSIGN(Description description, readDescription(options.file));
  const bool isBare = std::ranges::any_of(
      description.cpus, [](const CpuNode& cpu) { return hasBareGpu(cpu.devices); });
  if (isBare && !options.nvmlLibrary.empty())
    TUTTI_TRY(nvml::addGpus({.library = options.nvmlLibrary}, description));
  return description;
}

}  // namespace

Result<Description> discover(const DiscoverOptions& options) {
  if (!options.file.empty()) return completeFile(options);
  TUTTI_TRY_ASSIGN(Description description,
                   sysfs::read({.root = options.root, .hostHash = options.hostHash}));
  if (!options.nvmlLibrary.empty()) {
    TUTTI_TRY(nvml::addGpus({.library = options.nvmlLibrary}, description));
    dropUnnamedGpus(description);
  } else {
    dropGpus(description);
  }
  joinBridges(description);
  return description;
}

Result<std::string> readXmlText(const std::string& path) {
  return file::read(path, XmlLimits().bytes);
}

Result<Description> readDescription(const std::string& path) {
  TUTTI_TRY_ASSIGN(const std::string text, readXmlText(path));
  TUTTI_TRY_ASSIGN(const std::unique_ptr<XmlDocument> document, XmlDocument::parse(text, path));
  return document->root().name() == "topology" ? parseHwlocXml(*document) : parseXml(*document);
}

Result<Description> completeFromFile(const Description& description,
                                     const std::string& profilePath) {
  TUTTI_TRY_ASSIGN(const std::string text, readXmlText(profilePath));
  TUTTI_TRY_ASSIGN(const std::unique_ptr<XmlDocument> document,
                   XmlDocument::parse(text, profilePath));
  TUTTI_TRY_ASSIGN(const Profile profile, parseProfile(*document));
  return complete(description, profile);
}

bool isThere(const std::string& path) { return file::isThere(path); }

Status writeDescription(const Description& description, const std::string& path) {
  return file::write(path, writeXml(description));
}

}  // namespace tutti::topology
