// What of the bootstrap exists once a process: its name, the roots it runs, the endpoints that
// gather ranks, the ids it has used. Thread-safe. Outlives every Bootstrap.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/root.h"
#include "bootstrap/unique_id.h"

namespace tutti::bootstrap {

class Directory {
 public:
  // Raises this process's soft limit of descriptors to the hard one: a large job needs thousands.
  explicit Directory(Rng& rng = systemRng());

  uint64_t processHash() const { return processHash_; }
  const std::string& who() const { return who_; }  // "host:pid"
  const Maker& maker() const { return maker_; }    // of the ids that this process makes

  void addRoot(const JobId& job, std::shared_ptr<Root> root);
  std::shared_ptr<Root> findRoot(const JobId& job);
  // The rank that met at this root is done with it. Ends the root after its last rank.
  void leaveRoot(const JobId& job, std::shared_ptr<Root> root);
  // Ends a root that nobody will meet at; none is fine.
  void removeRoot(const JobId& job);

  // The endpoint that this process's ranks of the job share, made by the first of them.
  std::shared_ptr<Endpoint> joinEndpoint(const JobId& job, const Endpoint::Options& options);
  // Nobody can join it any more: the job has met, or failed to. Where `isUsed`, the job's id is
  // remembered as used.
  void closeEndpoint(const JobId& job, const Endpoint& endpoint, bool isUsed);
  // Whether the id was used here, among the last few thousand.
  bool wasUsed(const JobId& job);

 private:
  std::vector<std::shared_ptr<Root>> takeFinishedRoots();

  // Constant after construction.
  uint64_t processHash_ = 0;
  std::string hostName_;
  std::string who_;
  Maker maker_;

  std::mutex mutex_;  // guards all below
  // Shared with the Bootstraps of the ranks that meet there.
  std::map<JobId, std::shared_ptr<Root>> roots_;
  std::map<JobId, std::weak_ptr<Endpoint>> gathering_;
  std::deque<JobId> used_;
};

}  // namespace tutti::bootstrap
