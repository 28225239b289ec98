#include "transport/net/relay_service.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/char_field.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/segment.h"
#include "base/service_thread.h"
#include "bootstrap/key.h"
#include "bootstrap/socket.h"
#include "transport/net/pump.h"
#include "transport/offer.h"

namespace tutti::transport::net {
namespace {

// About as long as the next message of a train takes to come; shorter than waking a thread.
constexpr Nanoseconds kAlert = std::chrono::microseconds(50);
// How often it looks whether owners are there: a system call each.
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(50);
// While a connection is on its way.
constexpr Nanoseconds kBetweenTries = std::chrono::microseconds(100);
// Where not all words can be slept on.
constexpr Nanoseconds kShortSleep = std::chrono::milliseconds(1);

void answer(int channel, RelayAnswer::Outcome outcome, std::string_view why) {
  RelayAnswer message{.outcome = outcome};
  message.bytes = static_cast<uint32_t>(why.copy(message.why.data(), message.why.size()));
  // Who cannot be told has gone.
  [[maybe_unused]] const ssize_t sent =
      ::send(channel, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// One link. After construction the service's thread only.
class CarriedLink {
 public:
  struct Parts {
    std::shared_ptr<const UniqueMapping> memory;  // shared with the pump's connection
    wire::LinkGeometry geometry;
    UniqueFd channel;
    int32_t sender = -1;
    int32_t hostCount = 0;  // LinkOptions's
  };
  CarriedLink(Parts parts, const RelayService::Options& options)
      : parts_(std::move(parts)),
        options_(options),
        pump_(std::make_shared<SendPump>(Pump::Options{
            .ring = wire::viewLink(parts_.memory->get(), parts_.geometry),
            .memory = parts_.memory,
            .provider = options.provider,
            .clock = options.clock,
            .patience = options.timeout,
            .isForOther = true,
            .hostCount = parts_.hostCount,
            .others = options.others,
            .onEnd = [this](const Parting& parting) { write(page().ofCarrier, parting); },
            .onTaken = [this](uint64_t number, uint64_t bytes) { note(number, bytes); }})) {}
  ~CarriedLink() { pump_->close(); }

  SendPump& pump() { return *pump_; }
  int channel() const { return parts_.channel.get(); }
  std::atomic<uint32_t>& sleepers() { return control().receiverSleeps; }

  bool run() {
    const bool moved = pump_->run();
    // While this thread slept the provider's may have moved some.
    const Motor::Carried carried = pump_->carried();
    if (carried.messages != page().messages.load(std::memory_order_relaxed)) {
      page().bytes.store(carried.bytes, std::memory_order_relaxed);
      page().messages.store(carried.messages, std::memory_order_relaxed);
    }
    Parting parting;
    if (!hasLeft_ && read(page().ofSender, parting)) leave(parting);
    return moved;
  }

  // Whether its owner has gone, and all that was left is out.
  bool isOver(Instant now) {
    if (!goneAt_) {
      if (!hasGone(channel())) return false;
      goneAt_ = now;
      run();  // for its last words
      uint32_t none = 0;
      control().senderFault.compare_exchange_strong(
          none, static_cast<uint32_t>(wire::LinkFault::kLost), std::memory_order_release);
      if (!hasLeft_)
        leave({.guilty = parts_.sender,
               .text = fmt::format("the process of rank {} has gone", parts_.sender)});
    }
    return pump_->isOut() || now - *goneAt_ >= options_.timeout;
  }

 private:
  // The words of a sender that is profiled. Under the pump's lock.
  void note(uint64_t number, uint64_t bytes) {
    if (page().wantsTimes.load(std::memory_order_relaxed) == 0) return;
    TakenMessage& taken = page().taken[number % kTakenMessages];
    taken.at.store(static_cast<int64_t>(options_.clock.now()), std::memory_order_relaxed);
    taken.bytes.store(bytes, std::memory_order_relaxed);
    page().takenCount.store(number + 1, std::memory_order_release);
  }

  RelayPage& page() { return relayPage(parts_.memory->get(), parts_.geometry); }
  wire::LinkControl& control() { return *pump_->ring().control; }
  void leave(const Parting& parting) {
    hasLeft_ = true;
    pump_->leave(parting);
  }

  const Parts parts_;
  const RelayService::Options options_;
  const std::shared_ptr<SendPump> pump_;  // shared with the provider while it watches
  bool hasLeft_ = false;
  std::optional<Instant> goneAt_;
};

RelayService::RelayService(const Options& options) : options_(options) {}

RelayService::~RelayService() {
  std::list<SetUp> setUps;
  isEnding_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    isStopping_.store(true, std::memory_order_release);
    setUps.swap(setUps_);
  }
  for (SetUp& each : setUps) each.thread.join();
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void RelayService::wake() {
  news_.fetch_add(1, std::memory_order_seq_cst);
  wakeAll(news_);
}

UniqueFd RelayService::open(const bootstrap::HandoffToken& token) {
  const bool isSet = options_.token != bootstrap::HandoffToken{};
  if (!isSet || !bootstrap::equalInConstantTime(options_.token, token)) return {};
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return {};
  UniqueFd theirs(ends[1]);
  auto own = std::make_shared<UniqueFd>(ends[0]);  // shared with the thread's body, which is copied
  const std::lock_guard lock(mutex_);
  joinFinished();
  if (isEnding_.load(std::memory_order_acquire) || !startService().ok()) return {};
  SetUp& made = setUps_.emplace_back();
  Result<std::thread> thread = startThread("tutti-relay-in", [this, own, &made] {
    setUp(std::move(*own));
    const std::lock_guard over(mutex_);
    made.isOver = true;
    left_.notify_all();
  });
  if (!thread.ok()) {
    setUps_.pop_back();
    return {};
  }
  made.thread = std::move(thread).value();
  return theirs;
}

// Under mutex_.
void RelayService::joinFinished() {
  for (auto each = setUps_.begin(); each != setUps_.end();) {
    if (!each->isOver) {
      ++each;
      continue;
    }
    each->thread.join();
    each = setUps_.erase(each);
  }
}

// Under mutex_.
Status RelayService::startService() {
  if (thread_.joinable()) return {};
  allowFences();
  TUTTI_TRY_ASSIGN(thread_, startThread("tutti-relay", [this] { serve(); }));
  return {};
}

void RelayService::setUp(UniqueFd channel) {
  RelayRequest request;
  const Patience patience{
      .clock = options_.clock, .timeout = options_.timeout, .abort = &isEnding_};
  if (!receiveRecord(channel.get(), request, patience).ok()) return;
  Result<std::unique_ptr<CarriedLink>> link = carry(std::move(channel), request);
  if (!link.ok()) return;
  log::info(log::Subsystem::kP2p, "carries what rank {} sends to rank {}", request.sender,
            request.receiver);
  const std::lock_guard lock(mutex_);
  answer((*link)->channel(), RelayAnswer::Outcome::kCarried, {});
  arrivals_.push_back(std::move(*link));
  ++carriedCount_;
  wake();
}

// As long as the asker is there.
Result<std::unique_ptr<tutti::net::Connection>> RelayService::connect(const AskedLink& asked,
                                                                      const RelayRequest& request,
                                                                      int channel) {
  TUTTI_TRY_ASSIGN(auto pending, options_.provider.connect(asked.offer.contact,
                                                           {.number = asked.offer.number,
                                                            .self = Rank{request.sender},
                                                            .peer = Rank{request.receiver}},
                                                           options_.timeout));
  for (;;) {
    TUTTI_TRY_ASSIGN(auto connection, pending->poll());
    if (connection != nullptr) return connection;
    if (hasGone(channel))
      return Status(Code::kRemoteError, "the process that asked for the link has gone");
    if (isStopping_.load(std::memory_order_acquire))
      return Status(Code::kRemoteError, "the process that is to carry the link ends");
    sleepFor(kBetweenTries);
  }
}

// Says on the channel why not.
Result<std::unique_ptr<CarriedLink>> RelayService::carry(UniqueFd channel,
                                                         const RelayRequest& request) {
  const int descriptor = channel.get();
  RelayAnswer::Outcome outcome = RelayAnswer::Outcome::kRefused;
  const auto make = [&]() -> Result<std::unique_ptr<CarriedLink>> {
    TUTTI_TRY_ASSIGN(const AskedLink asked, readRequest(request));
    TUTTI_TRY_ASSIGN(const UniqueFd segment,
                     bootstrap::Handoff::take(textOf(request.senderHandoff), request.segmentToken,
                                              options_.timeout, &isEnding_));
    TUTTI_TRY_ASSIGN(UniqueMapping memory, mapSegment(segment, relaySegmentBytes(asked.geometry),
                                                      SegmentAccess::kReadWrite));
    outcome = RelayAnswer::Outcome::kUnreachable;
    TUTTI_TRY_ASSIGN(auto connection, connect(asked, request, descriptor));
    auto link = std::make_unique<CarriedLink>(
        CarriedLink::Parts{.memory = std::make_shared<const UniqueMapping>(std::move(memory)),
                           .geometry = asked.geometry,
                           .channel = std::move(channel),
                           .sender = request.sender,
                           .hostCount = request.hostCount},
        options_);
    link->pump().arrived(std::move(connection));
    return link;
  };
  Result<std::unique_ptr<CarriedLink>> made = make();
  if (made.ok()) return made;
  const bool ends =
      outcome == RelayAnswer::Outcome::kRefused && isEnding_.load(std::memory_order_acquire);
  answer(descriptor, outcome, ends ? "its process ends" : made.status().message());
  return made;
}

void RelayService::awaitOwners(Nanoseconds bound) {
  isEnding_.store(true, std::memory_order_release);
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, bound, [this] {
    return carriedCount_ == 0 && std::ranges::all_of(setUps_, &SetUp::isOver);
  });
}

// False: it is time to stop.
bool RelayService::takeArrivals(std::vector<std::unique_ptr<CarriedLink>>& links) {
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<CarriedLink>& each : arrivals_) links.push_back(std::move(each));
  arrivals_.clear();
  return !isStopping_.load(std::memory_order_acquire);
}

void RelayService::dropEnded(std::vector<std::unique_ptr<CarriedLink>>& links) {
  const Instant now = options_.clock.now();
  const size_t dropped = std::erase_if(
      links, [now](const std::unique_ptr<CarriedLink>& link) { return link->isOver(now); });
  if (dropped == 0) return;
  const std::lock_guard lock(mutex_);
  carriedCount_ -= dropped;
  left_.notify_all();
}

void RelayService::serve() {
  std::vector<std::unique_ptr<CarriedLink>> links;
  Instant lastMoved = options_.clock.now();
  Instant nextLook = lastMoved;
  for (;;) {
    const uint64_t seen = news_.load(std::memory_order_acquire);
    if (!takeArrivals(links)) return;
    bool moved = false;
    for (const std::unique_ptr<CarriedLink>& link : links) moved |= link->run();
    const Instant now = options_.clock.now();
    if (moved) lastMoved = now;
    if (now >= nextLook) {
      dropEnded(links);
      nextLook = now + kBetweenLooks;
    } else if (!moved && now - lastMoved < kAlert) {
      std::this_thread::yield();
    } else if (!moved) {
      sleep(links, seen);
    }
  }
}

// Until a message is published on one of the links, or there is news.
void RelayService::sleep(std::span<const std::unique_ptr<CarriedLink>> links, uint64_t seen) {
  std::array<FutexPoint, kMaxFutexPoints> points;
  points[0] = {.word = &news_, .seen = seen};
  const size_t slept = std::min(links.size(), points.size() - 1);
  for (const std::unique_ptr<CarriedLink>& link : links) link->pump().attend();
  for (size_t i = 0; i < slept; ++i) {
    links[i]->sleepers().fetch_add(1, std::memory_order_seq_cst);
    points[i + 1] = links[i]->pump().nextMark();
  }
  const bool isFenced = fenceOthers();
  const auto all = std::span(points).first(slept + 1);
  const bool isSame = std::ranges::all_of(all, [](const FutexPoint& point) {
    return point.word->load(std::memory_order_seq_cst) == point.seen;
  });
  Nanoseconds bound = links.empty() ? kUnbounded : kBetweenLooks;
  if (slept < links.size() || (!isFenced && !links.empty())) bound = kShortSleep;
  if (isSame && sleepOnAny(all, bound) == Sleep::kUnsupported)
    sleepOn(points[0], links.empty() ? kUnbounded : kShortSleep);
  for (size_t i = 0; i < slept; ++i) links[i]->sleepers().fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tutti::transport::net
