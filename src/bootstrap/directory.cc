#include "bootstrap/directory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kMaxUsedJobs = 4096;

void raiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    log::info(log::Subsystem::kBootstrap, "the limit of descriptors stays below {}",
              limit.rlim_max);
  }
}

std::string nameHost() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return host.data();
}

}  // namespace

Directory::Directory(Rng& rng)
    : hostName_(nameHost()),
      who_(fmt::format("{:.64}:{}", hostName_, ::getpid())),
      maker_(makerOn(hostName_)) {
  std::array<std::byte, sizeof processHash_> bytes;
  rng.fill(bytes);
  processHash_ = loadLittle<uint64_t>(bytes.data());
  raiseDescriptorLimit();
}

void Directory::addRoot(const JobId& job, std::shared_ptr<Root> root) {
  // Destroyed, and joined, without the lock.
  std::vector<std::shared_ptr<Root>> finished;
  std::lock_guard lock(mutex_);
  finished = takeFinishedRoots();
  if (const auto old = roots_.find(job); old != roots_.end()) finished.push_back(old->second);
  roots_[job] = std::move(root);
}

std::shared_ptr<Root> Directory::findRoot(const JobId& job) {
  std::lock_guard lock(mutex_);
  const auto found = roots_.find(job);
  return found == roots_.end() ? nullptr : found->second;
}

void Directory::leaveRoot(const JobId& job, std::shared_ptr<Root> root) {
  std::shared_ptr<Root> finished;
  if (!root->leave()) return;
  std::lock_guard lock(mutex_);
  const auto found = roots_.find(job);
  if (found == roots_.end() || found->second != root) return;
  finished = std::move(found->second);
  roots_.erase(found);
}

void Directory::removeRoot(const JobId& job) {
  std::shared_ptr<Root> removed;  // destroyed, and joined, without the lock
  std::lock_guard lock(mutex_);
  const auto found = roots_.find(job);
  if (found == roots_.end()) return;
  removed = std::move(found->second);
  roots_.erase(found);
}

std::shared_ptr<Endpoint> Directory::joinEndpoint(const JobId& job,
                                                  const Endpoint::Options& options) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<Endpoint>& place = gathering_[job];
  std::shared_ptr<Endpoint> endpoint = place.lock();
  if (!endpoint) {
    endpoint = std::make_shared<Endpoint>(options);
    place = endpoint;
  }
  return endpoint;
}

void Directory::closeEndpoint(const JobId& job, const Endpoint& endpoint, bool isUsed) {
  std::lock_guard lock(mutex_);
  const auto found = gathering_.find(job);
  if (found != gathering_.end() && found->second.lock().get() == &endpoint) gathering_.erase(found);
  if (!isUsed || std::find(used_.begin(), used_.end(), job) != used_.end()) return;
  used_.push_back(job);
  if (used_.size() > kMaxUsedJobs) used_.pop_front();
}

bool Directory::wasUsed(const JobId& job) {
  std::lock_guard lock(mutex_);
  return std::find(used_.begin(), used_.end(), job) != used_.end();
}

std::vector<std::shared_ptr<Root>> Directory::takeFinishedRoots() {
  std::vector<std::shared_ptr<Root>> finished;
  std::erase_if(roots_, [&](const auto& entry) {
    if (!entry.second->isFinished()) return false;
    finished.push_back(entry.second);
    return true;
  });
  return finished;
}

}  // namespace tutti::bootstrap
