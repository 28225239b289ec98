// tutti doctor: CPUs, memory, caches.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <type_traits>

#include "base/affinity.h"
#include "device/registry.h"
#include "tools/doctor_report.h"

#if TUTTI_HAS_HWLOC
#include <hwloc.h>
#endif

namespace tutti::tools {
namespace {

// "model name : AMD ..." of /proc/cpuinfo, "MemAvailable: 12 kB" of /proc/meminfo.
std::string fieldOf(const std::string& path, std::string_view field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

int64_t memoryField(std::string_view field) {
  return std::strtoll(fieldOf("/proc/meminfo", field).c_str(), nullptr, 10) * 1024;
}

void addCpus(Section& section) {
  const std::string model = fieldOf("/proc/cpuinfo", "model name");
  struct utsname system {};
  ::uname(&system);
  section.add("cpu", model.empty() ? std::string(system.machine) : model);
  section.add("kernel", fmt::format("{} {}", system.sysname, system.release));
  const int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto bound = static_cast<int64_t>(affinityCpus().size());
  const int64_t allowed = bound > 0 ? bound : online;
  auto device = device::openDevice(device::DeviceKind::kHost);
  const int64_t usable = device.ok() ? device.value()->caps().concurrency : allowed;
  std::string note = fmt::format("of {} online", online);
  if (allowed < online) note += fmt::format(", {} in this process's affinity", allowed);
  if (usable < allowed) note += fmt::format(", {} by the control group's quota", usable);
  note += "; more ranks than this take turns";
  section.add("cpus_usable", usable, note);
}

#if TUTTI_HAS_HWLOC

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { ::hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

void addCaches(Section& section, hwloc_topology_t topology) {
  for (const auto& [key, type] : {std::pair("l1_cache_bytes", HWLOC_OBJ_L1CACHE),
                                  std::pair("l2_cache_bytes", HWLOC_OBJ_L2CACHE),
                                  std::pair("l3_cache_bytes", HWLOC_OBJ_L3CACHE)}) {
    const hwloc_obj_t first = ::hwloc_get_obj_by_type(topology, type, 0);
    if (first == nullptr) continue;
    section.add(key, static_cast<int64_t>(first->attr->cache.size),
                fmt::format("{} of them", ::hwloc_get_nbobjs_by_type(topology, type)));
  }
}

void addTopology(Section& section) {
  hwloc_topology_t made = nullptr;
  if (::hwloc_topology_init(&made) != 0) return;
  const Topology topology(made);
  if (::hwloc_topology_load(topology.get()) != 0) {
    section.add("topology", "hwloc cannot read it");
    return;
  }
  const auto count = [&](hwloc_obj_type_t type) {
    return int64_t{::hwloc_get_nbobjs_by_type(topology.get(), type)};
  };
  section.add("packages", count(HWLOC_OBJ_PACKAGE));
  section.add("cores", count(HWLOC_OBJ_CORE));
  section.add("numa_nodes", count(HWLOC_OBJ_NUMANODE));
  addCaches(section, topology.get());
}

#else

void addTopology(Section& section) {
  section.add("topology", "not looked at", "tutti was built without hwloc (libhwloc-dev)");
}

#endif

}  // namespace

void examineMachine(DoctorReport& report) {
  Section& section = report.open("machine");
  addCpus(section);
  addTopology(section);
  section.add("memory_bytes", memoryField("MemTotal"));
  section.add("memory_available_bytes", memoryField("MemAvailable"));
}

}  // namespace tutti::tools
