// What all communicators of a process share. One object, made at first use and never destroyed:
// threads may still run library code while the process ends, in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/handle_table.h"
#include "base/mapping.h"
#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/directory.h"
#include "bootstrap/handoff.h"
#include "bootstrap/peer_info.h"
#include "comm/bundle_service.h"
#include "comm/link_register.h"
#include "comm/profiling.h"
#include "comm/reduction.h"
#include "comm/tuner_plugin.h"
#include "comm/virtual_cluster.h"
#include "device/device.h"
#include "kernels/crew.h"
#include "launch/gpu_profile.h"
#include "launch/gpu_room.h"
#include "launch/gpu_watcher.h"
#include "observe/recorder.h"
#include "topology/description.h"
#include "transport/registry.h"

namespace tutti::comm {

class Communicator;

class Process {
 public:
  static Process& get();

  const Settings& settings() const { return settings_; }
  bootstrap::NetworkOptions networkOptions() const;
  bootstrap::Directory& directory() { return directory_; }
  // Those of communicators whose links to other hosts are to go over that network.
  const transport::Transports& transports(const net::NetworkWish& wish) {
    return linksOf(wish).transports;
  }
  // CPU ranks' device.
  device::Device& hostDevice() { return *hostDevice_; }
  bootstrap::Handoff& handoff() { return handoff_; }
  observe::ProcessRecorders& recorders() { return recorders_; }
  Profiling& profiling() { return *profiling_; }
  HandleTable<Communicator>& communicators() { return communicators_; }
  // kInvalidUsage in a child that was forked after the library had been used: the threads and
  // connections of this object are its parent's.
  Status checkNotForked() const;
  bool isForked() const { return ownPage_ && *static_cast<const char*>(ownPage_.get()) == 0; }
  // What a rank of the calling thread runs on: a place in the virtual cluster, by default the
  // first, where there is one; else GPU number `gpu`, by default the one that the thread's CUDA
  // calls go to, or the host where there is none or TUTTI_DEVICE says so. kInvalidUsage when
  // TUTTI_DEVICE=cuda cannot be had, kInvalidArgument for a GPU that is not there.
  Result<device::Device*> chooseDevice(std::optional<int32_t> gpu = std::nullopt);
  // What TUTTI_VIRTUAL_CLUSTER describes, read at first need; null where it is not set.
  Result<VirtualCluster*> virtualCluster();
  // Memory from allocate() of any device of the process.
  Status freeMemory(void* memory);
  launch::GpuWatcher& gpuWatcher() { return gpuWatcher_; }
  // Another, which tells profilers what GPUs have done. Its thread begins with the first of them.
  launch::GpuWatcher& gpuTeller() { return gpuTeller_; }
  launch::GpuRooms& gpuRooms() { return gpuRooms_; }
  // Whose threads end with the last communicator that holds it.
  std::shared_ptr<kernels::Crews> crews();
  LinkRegister& links() { return links_; }
  Clock& clock() { return steadyClock(); }
  // True once: for a warning that one rank of the process is enough for.
  bool isFirstToWarnOfQueues() {
    return !hasWarnedOfQueues_.exchange(true, std::memory_order_relaxed);
  }
  // A random number at an address that peers try to read from outside.
  const uint64_t& probeWord() const { return probeWord_; }
  // Of comm/host_identity.h, found out once.
  uint64_t machineHash() const { return machineHash_; }

  // A tuner plug-in's view of a communicator; null where there is no plug-in, or it failed, which
  // is logged.
  std::shared_ptr<plan::Tuner> openTuner(const TunedCommunicator& communicator);

  // The network that reduces, found and opened at first need; or why there is none.
  Result<const FoundReduction*> reduction();

  // The machine as this process sees it, found out once; see machine.h.
  Result<topology::Description> machine(bool hasGpus);

  // This process as a peer of rank `rank`, of a communicator that wants that network.
  Result<bootstrap::PeerInfo> describe(Rank rank, const net::NetworkWish& wish);

 private:
  // Where links are made, and who may have this process carry its own.
  struct Links {
    transport::Transports transports;
    bootstrap::HandoffToken relayToken{};
  };

  Process();
  void leave();
  void leaveTransports();
  transport::TransportOptions transportOptions(const net::NetworkWish& wish,
                                               const bootstrap::HandoffToken& relayToken);
  transport::Transports allTransports();
  // Made at first need; it stays.
  const Links& linksOf(const net::NetworkWish& wish);

  // Constant after construction.
  Settings settings_;
  uint64_t probeWord_ = 0;
  uint64_t machineHash_ = 0;
  UniqueMapping ownPage_;  // whose first byte is 1; the kernel gives a forked child zeros instead
  std::unique_ptr<device::Device> hostDevice_;

  std::atomic<bool> hasWarnedOfQueues_{false};  // any thread; orders nothing else

  std::mutex gpuMutex_;                                      // guards gpus_
  std::map<int32_t, std::unique_ptr<device::Device>> gpus_;  // by number, opened at first use

  std::mutex virtualMutex_;                         // guards virtualCluster_
  std::unique_ptr<VirtualCluster> virtualCluster_;  // opened at first use

  std::mutex tunerMutex_;                      // guards tunerLibrary_
  std::optional<PluginLibrary> tunerLibrary_;  // looked for at first need, once

  std::mutex reductionMutex_;  // guards the two below
  std::optional<FoundReduction> reduction_;
  Status noReduction_;  // why there is none, once that is known

  std::mutex machineMutex_;                         // guards machines_
  std::map<bool, topology::Description> machines_;  // by whether GPUs were looked for

  // Thread-safe by themselves.
  bootstrap::Directory directory_;
  bootstrap::Handoff handoff_;
  const std::shared_ptr<net::Fabrics> fabrics_ = std::make_shared<net::Fabrics>();  // as it says
  std::mutex wishesMutex_;                      // guards networks_
  std::map<net::NetworkWish, Links> networks_;  // with that of no wish from the start
  observe::ProcessRecorders recorders_;
  HandleTable<Communicator> communicators_{0x43};
  launch::GpuWatcher gpuWatcher_;
  launch::GpuWatcher gpuTeller_{launch::GpuProfile::kLookInterval, "tutti-gpu-tell"};
  launch::GpuRooms gpuRooms_;
  std::mutex crewsMutex_;  // guards crews_
  std::weak_ptr<kernels::Crews> crews_;
  LinkRegister links_;
  std::unique_ptr<Profiling> profiling_;
  std::unique_ptr<BundleService> bundles_;  // null where no folder is set for them, nor a signal
};

}  // namespace tutti::comm
