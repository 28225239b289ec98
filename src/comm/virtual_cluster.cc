#include "comm/virtual_cluster.h"

#include <fmt/core.h>

#include "comm/hash.h"
#include "device/registry.h"
#include "sim/read_cluster.h"

namespace tutti::comm {

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::open(const Settings& settings) {
  const std::string& file = settings.text("TUTTI_VIRTUAL_CLUSTER");
  Result<sim::Cluster> cluster = sim::readCluster({.source = file});
  if (!cluster.ok()) return invalidUsage("TUTTI_VIRTUAL_CLUSTER: {}", cluster.status().message());
  const bool isNccl = settings.text("TUTTI_VIRTUAL_SYSTEM") == "nccl";
  std::unique_ptr<VirtualCluster> made(new VirtualCluster(
      file, std::move(cluster).value(), isNccl ? sim::System::kNccl : sim::System::kTutti));
  if (const std::string& trace = settings.text("TUTTI_VIRTUAL_TRACE"); !trace.empty()) {
    TUTTI_TRY_ASSIGN(made->trace_, launch::VirtualTrace::open(trace));
  }
  return made;
}

VirtualCluster::VirtualCluster(std::string file, sim::Cluster cluster, sim::System system)
    : file_(std::move(file)),
      cluster_(std::make_shared<const sim::Cluster>(std::move(cluster))),
      system_(system) {
  std::string text = fmt::format("{} {}", cluster_->rankCount(), cluster_->nodeCount());
  for (int32_t link = 0; link < cluster_->linkCount(); ++link)
    text += fmt::format(" {}", cluster_->gbPerSecond(link));
  fingerprint_ = hashOf(text);
}

Result<device::Device*> VirtualCluster::device(int32_t place) {
  if (place < 0 || place >= cluster_->rankCount())
    return invalidUsage(
        "place {} of the virtual cluster is wanted; {} has {}: 0 to {}; set "
        "TUTTI_VIRTUAL_CLUSTER to a larger one",
        place, file_, cluster_->rankCount(), cluster_->rankCount() - 1);
  const std::lock_guard lock(mutex_);
  auto& device = devices_[place];
  if (device == nullptr) {
    TUTTI_TRY_ASSIGN(device, device::openDevice(device::DeviceKind::kVirtual, {.index = place}));
  }
  return device.get();
}

std::shared_ptr<launch::VirtualWorld> VirtualCluster::join(Job job) {
  const std::lock_guard lock(mutex_);
  std::erase_if(worlds_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<launch::VirtualWorld>& known = worlds_[job.id];
  std::shared_ptr<launch::VirtualWorld> world = known.lock();
  if (world == nullptr) {
    world = std::make_shared<launch::VirtualWorld>(
        launch::VirtualWorld::Options{.name = std::move(job.name),
                                      .cluster = cluster_,
                                      .places = std::move(job.places),
                                      .isHere = std::move(job.isHere),
                                      .timing = {.system = system_, .launch = sim::Launch::kEager},
                                      .trace = trace_.get()});
    known = world;
  }
  return world;
}

}  // namespace tutti::comm
