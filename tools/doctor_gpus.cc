// tutti doctor: the driver, the GPUs, the kernels of this build, and what ranks run on.
#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/settings.h"
#include "device/registry.h"
#include "kernels/gpu_catalog.h"
#include "tools/doctor_report.h"

namespace tutti::tools {
namespace {

namespace gpu = kernels::cuda;

// "80 90" as "sm_80, sm_90 and later"
std::string shownArchitectures() {
  std::string shown = "sm_";
  for (const char each : gpu::architectures()) {
    if (each == ' ') {
      shown += ", sm_";
    } else {
      shown += each;
    }
  }
  return shown + " and later";
}

std::string shownCapability(const device::GpuFacts& facts) {
  return fmt::format("sm_{}", facts.capability);
}

// The library's own choice (comm::Process::chooseDevice), with the reason.
void addChoice(DoctorReport& report, Section& section, const Settings& settings, int64_t gpus) {
  const std::string& wanted = settings.text("TUTTI_DEVICE");
  const auto add = [&](const char* what, std::string why) {
    section.add("ranks_run_on", what, std::move(why));
  };
  if (!settings.text("TUTTI_VIRTUAL_CLUSTER").empty()) {
    add("nothing", "TUTTI_VIRTUAL_CLUSTER: calls are compared and timed");
  } else if (wanted == "host") {
    add("CPU", "TUTTI_DEVICE=host");
  } else if (gpus == 0) {
    add("CPU", "there is no GPU");
    if (wanted != "cuda") return;
    report.find("TUTTI_DEVICE=cuda, but there is no GPU for this process",
                "set TUTTI_DEVICE=host or auto, or let the process have one");
  } else if (gpu::hasImages()) {
    add("GPU", "kernels for " + shownArchitectures());
  } else if (wanted == "cuda") {
    add("GPU", "through host memory: this build has no GPU kernels");
  } else {
    add("CPU",
        "this build has no GPU kernels (cmake -DTUTTI_GPU_KERNELS=ON); TUTTI_DEVICE=cuda: GPU "
        "ranks through host memory");
  }
}

}  // namespace

void examineGpus(DoctorReport& report, const Settings& settings) {
  Section& section = report.open("devices");
  const auto gpus = device::describeGpus();
  const auto count = gpus.ok() ? static_cast<int64_t>(gpus.value().size()) : 0;
  section.add("gpus", count, gpus.ok() ? "" : std::string(gpus.status().message()));
  section.add("gpu_kernels", gpu::hasImages() ? shownArchitectures() : "none",
              gpu::hasImages() ? "" : "this build was made without them");
  for (int64_t index = 0; index < count; ++index) {
    const device::GpuFacts& facts = gpus.value()[static_cast<size_t>(index)];
    section.add(fmt::format("gpu_{}", index), facts.name,
                fmt::format("{}, {}", shownCapability(facts), facts.busId));
    if (!gpu::hasImages() || gpu::doRunOn(gpu::architectures(), facts.capability)) continue;
    report.find(fmt::format("GPU {} ({}) is {}: this build's kernels are for {}", index, facts.name,
                            shownCapability(facts), shownArchitectures()),
                "set TUTTI_DEVICE=host, or build with -DTUTTI_GPU_ARCHITECTURES");
  }
  addChoice(report, section, settings, count);
}

}  // namespace tutti::tools
