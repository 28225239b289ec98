// The described cluster that this process's ranks are of, where TUTTI_VIRTUAL_CLUSTER names one:
// its devices, and what the ranks of each communicator share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "bootstrap/unique_id.h"
#include "device/device.h"
#include "launch/virtual_world.h"
#include "sim/cluster.h"
#include "sim/time_constants.h"

namespace tutti::comm {

// Thread-safe. Lives as long as the process.
class VirtualCluster {
 public:
  // By TUTTI_VIRTUAL_*. One error with its place in the file.
  static Result<std::unique_ptr<VirtualCluster>> open(const Settings& settings);

  // The cluster's rank of this number as a device. kInvalidUsage where there is none.
  Result<device::Device*> device(int32_t place);

  // Tells clusters apart that only look alike: links and ranks go into it.
  uint64_t fingerprint() const { return fingerprint_; }

  // What the ranks of a job in this process share; the first of them makes it. `places`: of all its
  // ranks, in the cluster.
  struct Job {
    const bootstrap::JobId& id;
    std::string name;
    std::vector<Rank> places;
    std::vector<bool> isHere;
  };
  std::shared_ptr<launch::VirtualWorld> join(Job job);

 private:
  VirtualCluster(std::string file, sim::Cluster cluster, sim::System system);

  const std::string file_;
  const std::shared_ptr<const sim::Cluster> cluster_;  // shared with the worlds
  const sim::System system_;
  uint64_t fingerprint_ = 0;
  std::unique_ptr<launch::VirtualTrace> trace_;  // where there is to be one

  std::mutex mutex_;  // guards the rest
  std::map<int32_t, std::unique_ptr<device::Device>> devices_;
  // Shared by the communicators of the job's ranks here; gone with the last of them.
  std::map<bootstrap::JobId, std::weak_ptr<launch::VirtualWorld>> worlds_;
};

}  // namespace tutti::comm
