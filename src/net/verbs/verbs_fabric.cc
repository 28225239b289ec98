#include "net/verbs/verbs_fabric.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "net/foreign_calls.h"
#include "net/verbs/adapter.h"
#include "net/verbs/events.h"
#include "net/verbs/library.h"
#include "net/verbs/selection.h"
#include "net/verbs/verbs_lane.h"

namespace tutti::net::verbs {
namespace {

class VerbsListener final : public LaneListener {
 public:
  explicit VerbsListener(std::unique_ptr<VerbsLane> lane)
      : lane_(std::move(lane)), handle_(lane_->terms().pack()) {}
  const LaneHandle& handle() const override { return handle_; }
  void hear(const LaneHandle& answer) override {
    hasHeard_ = true;
    met_ = meet(answer);
  }
  Result<std::unique_ptr<Lane>> accept() override {
    if (!hasHeard_) return std::unique_ptr<Lane>();
    if (!met_.ok()) return met_.clone();
    return std::unique_ptr<Lane>(std::move(lane_));
  }

 private:
  Status meet(const LaneHandle& answer) {
    const ForeignCall call("libibverbs", "connecting a queue pair");
    TUTTI_TRY_ASSIGN(const LaneTerms terms, LaneTerms::unpack(answer));
    return lane_->meet(terms);
  }

  std::unique_ptr<VerbsLane> lane_;
  const LaneHandle handle_;
  bool hasHeard_ = false;
  Status met_;
};

// The listening end cannot receive yet when this lane is there; nobody sends before both sides have
// all their lanes.
class VerbsDialer final : public LaneDialer {
 public:
  explicit VerbsDialer(std::unique_ptr<VerbsLane> lane)
      : lane_(std::move(lane)), answer_(lane_->terms().pack()) {}
  Result<std::unique_ptr<Lane>> connect() override {
    return std::unique_ptr<Lane>(std::move(lane_));
  }
  LaneHandle answer() const override { return answer_; }

 private:
  std::unique_ptr<VerbsLane> lane_;
  const LaneHandle answer_;
};

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(const VerbsOptions& options, const Library& library, Rng& rng)
      : options_(options), library_(library), rng_(rng) {}

  Status open() {
    TUTTI_TRY_ASSIGN(const AdapterRules rules, AdapterRules::parse(options_.adapters));
    // Fails where somebody registered memory before us, who then has seen to it or not.
    if (library_.prepareForForks() != 0)
      log::info(log::Subsystem::kNet, "ibv_fork_init: too late in this process");
    TUTTI_TRY(openAdapters());
    std::vector<Road> roads = admit(rules);
    if (roads.empty()) {
      return Status(Code::kSystemError, fmt::format("InfiniBand has no port to use: {}",
                                                    reasons_.empty() ? "no adapter" : reasons_));
    }
    if (!reasons_.empty()) log::info(log::Subsystem::kNet, "IB: not used: {}", reasons_);
    group(roads);
    std::vector<Adapter*> watched;
    for (const auto& adapter : adapters_) watched.push_back(adapter.get());
    TUTTI_TRY_ASSIGN(watcher_, EventWatcher::start({.library = library_,
                                                    .adapters = std::move(watched),
                                                    .clock = *options_.clock,
                                                    .endsLanes = options_.endsOnEvents}));
    return {};
  }

  const Caps& caps() const override { return caps_; }

  Result<std::unique_ptr<LaneListener>> listen(const LanePlace& place) override {
    const ForeignCall call("libibverbs", "making a queue pair");
    const size_t ports = devices_[place.device].size();
    const size_t each = std::min<size_t>(options_.queuePairs, kMaxPairs / ports);
    TUTTI_TRY_ASSIGN(auto lane, openLane(place, VerbsLane::Side::kReceiver,
                                         {.pairs = each * ports,
                                          .stripe = options_.splitsData ? each * ports : ports}));
    return std::unique_ptr<LaneListener>(std::make_unique<VerbsListener>(std::move(lane)));
  }

  Result<std::unique_ptr<LaneDialer>> dial(const LanePlace& place,
                                           const LaneHandle& handle) override {
    const ForeignCall call("libibverbs", "making and connecting a queue pair");
    TUTTI_TRY_ASSIGN(const LaneTerms terms, LaneTerms::unpack(handle));
    TUTTI_TRY_ASSIGN(auto lane, openLane(place, VerbsLane::Side::kSender,
                                         {.pairs = terms.pairCount, .stripe = terms.stripe}));
    TUTTI_TRY(lane->meet(terms));
    return std::unique_ptr<LaneDialer>(std::make_unique<VerbsDialer>(std::move(lane)));
  }

 private:
  struct Width {
    size_t pairs = 1;
    size_t stripe = 1;
  };
  Result<std::unique_ptr<VerbsLane>> openLane(const LanePlace& place, VerbsLane::Side side,
                                              const Width& width) {
    TUTTI_TRY_ASSIGN(const PacketMarks marks, packetMarks(options_, place.trafficClass));
    uint32_t packetNumber = 0;
    rng_.fill(std::as_writable_bytes(std::span(&packetNumber, 1)));
    return VerbsLane::open({.library = library_,
                            .settings = options_,
                            .roads = devices_[place.device],
                            .side = side,
                            .pairCount = width.pairs,
                            .stripe = width.stripe,
                            .packetNumber = packetNumber & 0xffffff,
                            .marks = marks});
  }

  Status openAdapters() {
    int count = 0;
    ::ibv_device** const list = library_.getDeviceList(&count);
    if (list == nullptr) return check(errno, "ibv_get_device_list", "this host");
    for (int i = 0; i < count; ++i) {
      if (list[i]->transport_type != IBV_TRANSPORT_IB) {
        decline(fmt::format("{} is neither InfiniBand nor RoCE", list[i]->name));
        continue;
      }
      Result<std::unique_ptr<Adapter>> adapter = Adapter::open(library_, list[i], options_);
      if (adapter.ok()) {
        adapters_.push_back(std::move(adapter).value());
      } else {
        decline(std::string(adapter.status().message()));
      }
    }
    library_.freeDeviceList(list);
    return {};
  }

  std::vector<Road> admit(const AdapterRules& rules) {
    std::vector<Road> roads;
    for (const auto& adapter : adapters_) {
      for (const auto& port : adapter->ports()) {
        if (!rules.admits(adapter->name(), port->number)) {
          decline(fmt::format("{}: NCCL_IB_HCA={}", port->name, options_.adapters));
        } else if (!port->obstacle.empty()) {
          decline(port->obstacle);
        } else {
          roads.push_back({.adapter = adapter.get(), .port = port.get()});
        }
      }
    }
    return roads;
  }

  void group(const std::vector<Road>& roads) {
    std::vector<Place> places;
    for (const Road& road : roads)
      places.push_back({.address = road.adapter->address(), .isEthernet = road.port->isEthernet});
    const auto groups = mergePorts(places, {.ports = options_.mergesPorts,
                                            .virtualFunctions = options_.mergesVirtualFunctions,
                                            .mostTogether = kMaxPorts});
    caps_.name = "IB";
    caps_.library = "libibverbs";
    caps_.returnsAtOnce = true;
    caps_.deviceCount = groups.size();
    addAdapters(groups, roads);
    caps_.description = fmt::format("{} adapter{}", groups.size(), groups.size() == 1 ? "" : "s");
    for (const std::vector<size_t>& members : groups) {
      devices_.emplace_back();
      for (const size_t i : members) {
        const Port& port = *roads[i].port;
        devices_.back().push_back(roads[i]);
        caps_.maxMessageBytes = std::min(caps_.maxMessageBytes, port.maxMessageBytes);
        caps_.description += fmt::format(
            "{}{} ({:g} Gb/s, {})",
            devices_.back().size() > 1 ? " + "
            : devices_.size() > 1      ? ", "
                                       : ": ",
            port.name, port.speedGbps,
            port.isEthernet ? fmt::format("RoCE from {}", port.gid.text()) : "InfiniBand");
      }
    }
  }

  // As memory of GPUs goes: ports that act as one take what all of them take.
  void addAdapters(const std::vector<std::vector<size_t>>& groups, const std::vector<Road>& roads) {
    for (const std::vector<size_t>& members : groups) {
      const Adapter& first = *roads[members.front()].adapter;
      net::Adapter adapter{.name = first.name(), .place = first.address()};
      adapter.takesGpuMemory = adapter.takesDmaBuffers = true;
      for (const size_t i : members) {
        const Registrations& registrations = roads[i].adapter->registrations();
        adapter.takesGpuMemory = adapter.takesGpuMemory && registrations.takesGpuMemory();
        adapter.takesDmaBuffers = adapter.takesDmaBuffers && registrations.takesDmaBuffers();
      }
      caps_.adapters.push_back(std::move(adapter));
    }
    if (std::ranges::none_of(caps_.adapters, &net::Adapter::canReachGpus)) caps_.adapters.clear();
  }

  void decline(std::string_view why) {
    if (!reasons_.empty()) reasons_ += "; ";
    reasons_ += why;
  }

  const VerbsOptions options_;
  const Library library_;
  Rng& rng_;
  Caps caps_;
  std::string reasons_;  // why ports are not used
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<std::vector<Road>> devices_;  // ports that act as one
  std::unique_ptr<EventWatcher> watcher_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> open(const VerbsOptions& options, Rng& rng) {
  TUTTI_TRY_ASSIGN(const Library library, loadLibrary(options.library));
  auto fabric = std::make_unique<VerbsFabric>(options, library, rng);
  TUTTI_TRY(fabric->open());
  return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace tutti::net::verbs
