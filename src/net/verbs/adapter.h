// Opened adapters and their ports: what all lanes over them share, and what has happened to them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/verbs/library.h"
#include "net/verbs/registrations.h"
#include "net/verbs/selection.h"
#include "net/verbs_options.h"

namespace tutti::net::verbs {

// Constant after opening, but for what is atomic.
struct Port {
  std::string name{};  // "mlx5_0:1"
  uint8_t number = 0;
  std::string obstacle{};  // why it cannot be used; empty: it can
  bool isEthernet = false;
  bool needsGlobalRoute = false;
  uint16_t lid = 0;
  ::ibv_mtu mtu = IBV_MTU_256;
  double speedGbps = 0;
  size_t maxMessageBytes = 0;
  Gid gid{};

  // When the port went down, as a Clock's Instant; 0: it is up. Written by the thread of events,
  // read by lanes, who only compare it with now.
  std::atomic<int64_t> downSince{0};
};

class Adapter {
 public:
  // All its ports, also those that are down. Errors are not logged.
  static Result<std::unique_ptr<Adapter>> open(const Library& library, ::ibv_device* device,
                                               const VerbsOptions& options);

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }  // on the PCI bus; empty: unknown
  ::ibv_context* context() const { return context_.get(); }
  ::ibv_pd* domain() const { return domain_.get(); }
  Registrations& registrations() { return *registrations_; }
  std::vector<std::unique_ptr<Port>>& ports() { return ports_; }

  // What ended it: later all that is asked of its lanes fails so.
  void fail(std::string why);
  Status trouble() const;

 private:
  Adapter(const Library& library, std::string name) : library_(library), name_(std::move(name)) {}
  Status look(const VerbsOptions& options, uint8_t number);
  Status findGid(const VerbsOptions& options, const ::ibv_port_attr& attributes, Port& port);

  const Library& library_;
  const std::string name_;
  std::string address_;
  // In this order: regions belong to the domain, the domain to the context.
  Owned<::ibv_context> context_;
  Owned<::ibv_pd> domain_;
  std::unique_ptr<Registrations> registrations_;
  std::vector<std::unique_ptr<Port>> ports_;

  std::atomic<bool> hasFailed_{false};  // released by fail(), once failure_ stands
  mutable std::mutex mutex_;
  std::string failure_;  // under mutex_
};

// A port with the adapter that it belongs to.
struct Road {
  Adapter* adapter = nullptr;
  Port* port = nullptr;
};

}  // namespace tutti::net::verbs
