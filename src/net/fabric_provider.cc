#include "net/fabric_provider.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/service_thread.h"
#include "net/held_group.h"

namespace tutti::net {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShortestPause{20};
constexpr microseconds kLongestPause{1000};
constexpr size_t kUsualWatches = 256;  // at once; more make room

// Tells our watches from those of the network that we build upon.
constexpr uint64_t kOurs = uint64_t{1} << 63;

// The last byte of a contact is left to us: whether links that are opened to it begin with a
// meeting.
std::byte& meetsAt(Provider::Contact& contact) { return contact.back(); }

}  // namespace

// Stands in for the link's end until the two sides have met.
class FabricProvider::Arrival final : public Worker {
 public:
  Arrival(FabricProvider& provider, uint64_t number, std::shared_ptr<Worker> worker)
      : provider_(provider), number_(number), worker_(std::move(worker)) {}
  void arrived(std::unique_ptr<Connection> connection) override {
    provider_.receive(number_, std::move(connection), std::move(worker_));
  }
  void work(uint64_t) override {}

 private:
  FabricProvider& provider_;
  const uint64_t number_;
  std::shared_ptr<Worker> worker_;  // shared with the link's end
};

FabricProvider::FabricProvider(Options options) : options_(std::move(options)) {}

FabricProvider::~FabricProvider() {
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  wake_->notify_all();
  if (thread_.joinable()) thread_.join();
  options_.sockets.reset();  // whose thread may still bring arrivals, to be turned away
  appointments_.clear();
  lanes_.reset();
  if (found_.fabric == nullptr) return;
  calls_->post([fabric = std::move(found_.fabric)] {});
  endCalls(std::move(calls_));
}

Result<Progress> FabricProvider::prepare() {
  std::lock_guard lock(mutex_);
  return tryOpen();
}

// For who has not prepared.
Status FabricProvider::open(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    TUTTI_TRY_ASSIGN(const Progress progress, tryOpen());
    if (progress == Progress::kDone) return {};
    wake_->wait_for(lock, kShortestPause);
  }
}

// Under mutex_. An error is told to everyone who asks: a fabric may come up later.
Result<Progress> FabricProvider::tryOpen() {
  if (isOpen_) return Progress::kDone;
  TUTTI_TRY_ASSIGN(std::optional<Found> found, find());
  if (!found) return Progress::kIdle;
  found_ = std::move(*found);
  isOpen_ = true;
  if (found_.fabric == nullptr) {
    calls_.reset();
    capsInUse_.store(&options_.sockets->caps(), std::memory_order_release);
    if (!found_.obstacle.empty())
      log::info(log::Subsystem::kNet, "links to other hosts over sockets: {}", found_.obstacle);
    return Progress::kDone;
  }
  const Fabric::Caps& caps = found_.fabric->caps();
  if (!caps.registersMemory) {
    fabricCaps_.reach = wire::CarrierReach::kAnything;
  } else if (options_.segments != nullptr) {
    fabricCaps_.reach = wire::CarrierReach::kSegments;
  }
  capsInUse_.store(&fabricCaps_, std::memory_order_release);
  log::info(log::Subsystem::kNet, "links to other hosts over {}: {}", caps.name, caps.description);
  return Progress::kDone;
}

// Under mutex_; nothing: it is under way. A search that does not end is not begun anew: it would
// end no better.
Result<std::optional<FabricProvider::Found>> FabricProvider::find() {
  if (hang_.empty()) {
    if (calls_ == nullptr) {
      TUTTI_TRY_ASSIGN(calls_, CallThread::start());
    }
    if (!search_.isUnderWay()) {
      searchEnd_ = options_.clock->now() + options_.timeout;
      search_.start(calls_.get(), options_.find);
    }
    if (std::optional<Result<Found>> found = search_.take()) {
      if (!found->ok()) return found->takeStatus();
      return std::optional(std::move(*found).value());
    }
    if (options_.clock->now() < searchEnd_) return std::optional<Found>();
    search_.drop();
    std::string hang = calls_->complaint(options_.timeout);
    if (!options_.isForced) {
      log::warn("{}: links to other hosts go over sockets", hang);
      return std::optional(Found{.fabric = nullptr, .obstacle = std::move(hang)});
    }
    hang_ = std::move(hang);
    calls_.reset();
  }
  return invalidUsage("{}: this network cannot be used: {}", options_.namedBy, hang_);
}

// Under mutex_.
Status FabricProvider::startService() {
  if (thread_.joinable()) return {};
  watched_.reserve(kUsualWatches);
  TUTTI_TRY_ASSIGN(thread_, startThread("tutti-fabric", [this] { serve(); }));
  return {};
}

// Under mutex_.
Status FabricProvider::startLanes() {
  const bool isNeeded = found_.fabric != nullptr && !found_.fabric->caps().returnsAtOnce;
  if (!isNeeded || lanes_ != nullptr) return {};
  TUTTI_TRY_ASSIGN(lanes_, LaneThread::start({.fabric = found_.fabric,
                                              .timeout = options_.timeout,
                                              .onMoved = [wake = wake_] { wake->notify_all(); },
                                              .clock = *options_.clock}));
  return {};
}

Result<Provider::Contact> FabricProvider::contact() {
  {
    std::unique_lock lock(mutex_);
    TUTTI_TRY(open(lock));
  }
  TUTTI_TRY_ASSIGN(Contact contact, options_.sockets->contact());
  std::lock_guard lock(mutex_);
  if (found_.fabric != nullptr) meetsAt(contact) = std::byte{1};
  return contact;
}

Result<std::vector<Adapter>> FabricProvider::adapters() {
  std::unique_lock lock(mutex_);
  TUTTI_TRY(open(lock));
  return found_.fabric != nullptr ? found_.fabric->caps().adapters : std::vector<Adapter>();
}

void FabricProvider::expect(uint64_t number, std::shared_ptr<Worker> worker) {
  bool meets = false;
  {
    std::lock_guard lock(mutex_);
    meets = found_.fabric != nullptr;
  }
  if (meets) worker = std::make_shared<Arrival>(*this, number, std::move(worker));
  options_.sockets->expect(number, std::move(worker));
}

void FabricProvider::forget(uint64_t number) {
  options_.sockets->forget(number);
  std::lock_guard lock(mutex_);
  std::erase_if(appointments_, [number](const auto& appointment) {
    return appointment->worker != nullptr && appointment->number == number;
  });
}

// Under mutex_. A fabric that hangs is none any more.
Meeting::Options FabricProvider::meetingOptions(std::string peer, Nanoseconds timeout,
                                                std::span<const size_t> adapters) {
  std::string obstacle = found_.obstacle.empty() ? "no such network here" : found_.obstacle;
  const bool isHung = lanes_ != nullptr && lanes_->isHung();
  if (isHung) obstacle = lanes_->look().message();
  return {.fabric = isHung ? nullptr : found_.fabric,
          .calls = calls_.get(),
          .lanes = lanes_,
          .obstacle = std::move(obstacle),
          .peer = std::move(peer),
          .clock = *options_.clock,
          .patience = timeout / 2,
          .deadline = options_.clock->now() + timeout,
          .adapters = {adapters.begin(), adapters.end()},
          .trafficClass = options_.trafficClass,
          .segments = found_.fabric != nullptr && found_.fabric->caps().registersMemory
                          ? options_.segments
                          : nullptr};
}

void FabricProvider::receive(uint64_t number, std::unique_ptr<Connection> control,
                             std::shared_ptr<Worker> worker) {
  std::lock_guard lock(mutex_);
  if (isStopping_ || !startService().ok() || !startLanes().ok())
    return;  // told; the sender finds the connection closed
  auto appointment = std::make_shared<Appointment>();
  appointment->meeting = meetAsReceiver(
      std::move(control),
      meetingOptions("the sender of a link", options_.timeout, worker->adapters()), turnOf(number));
  appointment->number = number;
  appointment->worker = std::move(worker);
  appointments_.push_back(std::move(appointment));
  wake_->notify_all();
}

// First the control connection, over sockets; then the two sides meet.
class FabricProvider::Pending final : public PendingConnection {
 public:
  Pending(FabricProvider& provider, const Caller& caller, Nanoseconds timeout,
          std::unique_ptr<PendingConnection> control)
      : provider_(provider),
        self_(caller.self),
        peer_(caller.peer),
        adapters_(caller.adapters.begin(), caller.adapters.end()),
        timeout_(timeout),
        control_(std::move(control)) {}
  ~Pending() override {
    if (appointment_ != nullptr) provider_.giveUp(appointment_);
  }

  Result<std::unique_ptr<Connection>> poll() override {
    if (appointment_ == nullptr) {
      TUTTI_TRY_ASSIGN(auto control, control_->poll());
      if (control == nullptr) return control;
      TUTTI_TRY_ASSIGN(appointment_,
                       provider_.meet(std::move(control), fmt::format("rank {}", index(peer_)),
                                      timeout_, adapters_));
    }
    if (!provider_.isOver(*appointment_)) return std::unique_ptr<Connection>();
    return provider_.conclude(*appointment_->meeting,
                              fmt::format("rank {} to rank {}", index(self_), index(peer_)));
  }

 private:
  FabricProvider& provider_;
  const Rank self_;
  const Rank peer_;
  const std::vector<size_t> adapters_;
  const Nanoseconds timeout_;
  const std::unique_ptr<PendingConnection> control_;
  std::shared_ptr<Appointment> appointment_;  // shared with the thread that steps it
};

Result<std::unique_ptr<PendingConnection>> FabricProvider::connect(
    const Contact& contact, const Caller& caller, std::chrono::milliseconds timeout) {
  Contact sockets = contact;
  const bool meets = std::exchange(meetsAt(sockets), std::byte{0}) != std::byte{0};
  {
    std::unique_lock lock(mutex_);
    TUTTI_TRY(open(lock));
  }
  if (!meets && options_.isForced) {
    return remoteError("rank {} links by sockets, but {} is set here: set it alike on all",
                       index(caller.peer), options_.namedBy);
  }
  Caller byWords = caller;
  byWords.isControl = meets;
  TUTTI_TRY_ASSIGN(auto control, options_.sockets->connect(sockets, byWords, timeout));
  if (!meets) return control;
  return std::unique_ptr<PendingConnection>(
      std::make_unique<Pending>(*this, caller, timeout, std::move(control)));
}

Result<std::shared_ptr<FabricProvider::Appointment>> FabricProvider::meet(
    std::unique_ptr<Connection> control, std::string peer, Nanoseconds timeout,
    std::span<const size_t> adapters) {
  auto appointment = std::make_shared<Appointment>();
  std::lock_guard lock(mutex_);
  TUTTI_TRY(startService());
  TUTTI_TRY(startLanes());
  appointment->meeting =
      meetAsSender(std::move(control), meetingOptions(std::move(peer), timeout, adapters));
  appointments_.push_back(appointment);
  wake_->notify_all();
  return appointment;
}

bool FabricProvider::isOver(const Appointment& appointment) {
  std::lock_guard lock(mutex_);
  return appointment.isOver;
}

void FabricProvider::giveUp(const std::shared_ptr<Appointment>& appointment) {
  std::lock_guard lock(mutex_);
  std::erase(appointments_, appointment);
}

Result<std::unique_ptr<Connection>> FabricProvider::conclude(Meeting& meeting,
                                                             std::string_view link) {
  Result<std::unique_ptr<Connection>> connection = meeting.take();
  if (!connection.ok() || meeting.isOverFabric()) return connection;
  if (options_.isForced) {
    return remoteError("no link from {} over the network that {} asks for: {}", link,
                       options_.namedBy, meeting.obstacle());
  }
  bool isFirst = false;
  {
    std::lock_guard lock(mutex_);
    isFirst = !std::exchange(hasWarned_, true);
  }
  if (isFirst) {
    log::warn("a link from {} goes over sockets: {} (further ones are told at INFO)", link,
              meeting.obstacle());
  } else {
    log::info(log::Subsystem::kNet, "a link from {} goes over sockets: {}", link,
              meeting.obstacle());
  }
  return connection;
}

Result<uint64_t> FabricProvider::watch(Connection& connection, const Readiness& readiness,
                                       std::shared_ptr<Worker> worker) {
  auto* own = dynamic_cast<FabricConnection*>(&connection);
  if (own == nullptr) return options_.sockets->watch(connection, readiness, std::move(worker));
  const bool hasMoved = own->takeHasMoved();
  std::lock_guard lock(mutex_);
  const uint64_t watch = kOurs | nextWatch_++;
  hasMoved_ = hasMoved_ || hasMoved;
  const bool wasIdle = watched_.empty();
  watched_.push_back({.watch = watch, .worker = std::move(worker)});
  if (wasIdle) wake_->notify_all();
  return watch;
}

void FabricProvider::unwatch(uint64_t watch) {
  if ((watch & kOurs) == 0) return options_.sockets->unwatch(watch);
  std::lock_guard lock(mutex_);
  std::erase_if(watched_, [watch](const Watched& each) { return each.watch == watch; });
}

void FabricProvider::serve() {
  microseconds pause = kShortestPause;
  // It and watched_ take turns, so that who calls seldom makes room.
  std::vector<Watched> due;
  due.reserve(kUsualWatches);
  std::unique_lock lock(mutex_);
  while (!isStopping_) {
    if (appointments_.empty() && watched_.empty()) {
      wake_->wait(lock);
      pause = kShortestPause;
      continue;
    }
    hasMoved_ = false;
    stepMeetings(lock);
    due.swap(watched_);
    lock.unlock();
    for (const Watched& each : due) each.worker->work(each.watch);
    due.clear();
    lock.lock();
    pause = hasMoved_ ? kShortestPause : std::min(2 * pause, kLongestPause);
    if (!hasMoved_ && !isStopping_) wake_->wait_for(lock, pause);
  }
}

void FabricProvider::stepMeetings(std::unique_lock<std::mutex>& lock) {
  const auto appointments = appointments_;
  for (const auto& appointment : appointments) {
    lock.unlock();
    const bool isOver = appointment->meeting->step();
    lock.lock();
    if (!isOver) continue;
    appointment->isOver = true;
    hasMoved_ = true;
    // Nothing is delivered to who has been forgotten meanwhile.
    if (std::erase(appointments_, appointment) == 0 || appointment->worker == nullptr) continue;
    lock.unlock();
    deliver(*appointment);
    lock.lock();
  }
}

void FabricProvider::deliver(Appointment& appointment) {
  Result<std::unique_ptr<Connection>> connection =
      conclude(*appointment.meeting, "another host to a rank here");
  if (connection.ok()) appointment.worker->arrived(std::move(connection).value());
}

}  // namespace tutti::net
