#include "bootstrap/root.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "bootstrap/bytes.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

// How often a waiting rank looks at its abort flag.
constexpr std::chrono::milliseconds kAbortCheck{50};

uint64_t makeEpoch(Rng& rng) {
  std::array<std::byte, sizeof(uint64_t)> bytes;
  rng.fill(bytes);
  return loadLittle<uint64_t>(bytes.data()) | 1u;
}

}  // namespace

Root::Root(Options options)
    : options_(std::move(options)),
      meeting_(options_.job, makeEpoch(*options_.rng), options_.timeout) {}

std::shared_ptr<Root> Root::makeLocal(Options options) {
  return std::shared_ptr<Root>(new Root(std::move(options)));
}

Result<std::shared_ptr<Root>> Root::open(UniqueFd listener, Options options) {
  std::shared_ptr<Root> root(new Root(std::move(options)));
  TUTTI_TRY_ASSIGN(root->poller_, Poller::open());
  TUTTI_TRY_ASSIGN(root->acceptor_, Acceptor::open(std::move(listener),
                                                   {.key = root->options_.key,
                                                    .purpose = Purpose::kReport,
                                                    .helloTimeout = root->options_.helloTimeout,
                                                    .who = "root of job " + root->options_.job,
                                                    .clock = root->options_.clock,
                                                    .rng = root->options_.rng},
                                                   *root->poller_));
  root->address_ = root->acceptor_->address();
  Root* self = root.get();
  TUTTI_TRY_ASSIGN(root->thread_, startThread("tutti-root", [self] { self->serve(); }));
  return root;
}

Root::~Root() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  poller_->wake();
  thread_.join();
}

Result<Answer> Root::meet(const Report& report, const Wait& wait) {
  std::unique_lock lock(mutex_);
  ++localUsers_;
  hadLocalUser_ = true;
  if (meeting_.isOver()) return meeting_.failureFor(report);
  listenLocally_ = wait.listen;
  localProcess_ = report.contact.processHash;
  localName_ = fmt::format("rank {} ({})", report.circle.numberOf(report.rank), report.contact.who);
  meeting_.arrive(report, options_.clock->now());
  settle();
  while (!meeting_.isOver()) {
    const Nanoseconds left = *meeting_.deadline() - options_.clock->now();
    changed_.wait_for(lock, std::min<Nanoseconds>(kAbortCheck, left));
    if (wait.abort != nullptr && wait.abort->load(std::memory_order_relaxed)) {
      meeting_.leave(report.rank, "was aborted");
    }
    const Status* elsewhere =
        wait.failure == nullptr ? nullptr : wait.failure->load(std::memory_order_acquire);
    if (elsewhere != nullptr && !meeting_.isOver()) meeting_.fail(elsewhere->clone());
    expire(options_.clock->now());
    settle();
  }
  // Now, not by the thread later: this process may end as soon as it learns of a failure.
  if (poller_) answerAll();
  if (meeting_.state() == Meeting::State::kFailed) return meeting_.failure();
  return meeting_.answerFor(report.rank);
}

void Root::giveUp(Rank rank, std::string_view who, std::string_view why) {
  std::lock_guard lock(mutex_);
  if (meeting_.isOver()) return;
  meeting_.fail(remoteError("job {}: rank {} ({}) failed before it could join: {}", options_.job,
                            index(rank), who, why));
  settle();
}

bool Root::leave() {
  std::lock_guard lock(mutex_);
  --localUsers_;
  if (poller_) poller_->wake();
  return mayEnd(options_.clock->now());
}

bool Root::isGathering() const {
  std::lock_guard lock(mutex_);
  return !meeting_.isOver();
}

std::string_view Root::obstacle() const {
  return acceptor_ ? std::string_view(acceptor_->obstacle()) : std::string_view();
}

size_t Root::presentCount() const {
  std::lock_guard lock(mutex_);
  return meeting_.presentCount();
}

bool Root::isFinished() const {
  std::lock_guard lock(mutex_);
  return isFinished_ || (!poller_ && meeting_.isOver() && localUsers_ == 0);
}

Acceptor::Counters Root::counters() const {
  std::lock_guard lock(mutex_);
  return acceptor_ ? acceptor_->counters() : Acceptor::Counters();
}

void Root::expire(Instant now) {
  meeting_.expire(now, obstacle());
  if (const std::string notice = meeting_.notice(now); !notice.empty()) log::warn("{}", notice);
}

// Called whenever the meeting may have ended: makes that known to all who wait.
void Root::settle() {
  if (!meeting_.isOver() || overSince_) return;
  overSince_ = options_.clock->now();
  openLocalListener();
  listenLocally_ = nullptr;  // it holds on to the endpoint
  changed_.notify_all();
  if (poller_) poller_->wake();
}

void Root::openLocalListener() {
  if (meeting_.state() != Meeting::State::kMet || meeting_.isOneProcess() || !listenLocally_)
    return;
  Result<SocketAddress> address = listenLocally_();
  if (address.ok()) {
    meeting_.setAddress(localProcess_, *address);
  } else {
    // Ranks of other processes hear of it, too: whose it was.
    const Status why = address.takeStatus();
    meeting_.fail(Status(why.code(), fmt::format("{}: {}", localName_, why.message())));
  }
}

void Root::serve() {
  bool goesOn = true;
  while (goesOn) {
    std::optional<Instant> until;
    {
      std::lock_guard lock(mutex_);
      until = nextTime();
    }
    const std::span<const Poller::Event> events = poller_->wait(*options_.clock, until);
    std::lock_guard lock(mutex_);
    goesOn = serveOnce(events);
  }
}

bool Root::serveOnce(std::span<const Poller::Event> events) {
  std::vector<Accepted> accepted;
  for (const Poller::Event& event : events) {
    if (event.key < Acceptor::kFirstFreeKey) {
      acceptor_->onEvent(event.key, accepted);
      continue;
    }
    const auto found = connections_.find(event.key);
    if (found == connections_.end()) continue;
    Connection& connection = found->second;
    const bool stays = connection.isAnswered ? !flush(connection) : onReadable(connection);
    if (!stays) drop(found, "closed its connection");
  }
  acceptor_->onTime(accepted);
  admit(accepted);
  const Instant now = options_.clock->now();
  dropSilent(now);
  expire(now);
  if (isStopping_ && !meeting_.isOver()) {
    meeting_.fail(remoteError("job {}: the process of its root ended", options_.job));
  }
  settle();
  answerAll();
  std::erase_if(connections_, [](const auto& entry) { return entry.second.isDone; });
  return isStopping_ || mayEnd(now) ? close() : true;
}

void Root::admit(std::vector<Accepted>& accepted) {
  for (Accepted& peer : accepted) {
    const uint64_t key = nextKey_++;
    setTcpOptions(peer.fd.get(), options_.timeout);
    poller_->change(peer.fd.get(), key, Interest::kRead);
    connections_.emplace(key,
                         Connection{.fd = std::move(peer.fd),
                                    .decoder = FrameDecoder(peer.keys.clientToServer),
                                    .encoder = FrameEncoder(peer.keys.serverToClient),
                                    .introduction = peer.introduction,
                                    .reportDeadline = options_.clock->now() + options_.helloTimeout,
                                    .out = {}});
  }
}

// False when the connection is to be dropped.
bool Root::onReadable(Connection& connection) {
  std::array<std::byte, 1024> buffer;
  const IoResult read = readSome(connection.fd.get(), buffer);
  if (read.state == IoState::kWouldBlock) return true;
  if (read.state == IoState::kClosed) return isOwedAnswer(connection);
  std::vector<Frame> frames;
  const FrameFault fault = connection.decoder.feed(std::span(buffer).first(read.count), frames);
  if (fault != FrameFault::kNone) {
    log::info(log::Subsystem::kBootstrap, "root of job {} dropped rank {}'s connection: {}",
              options_.job, index(connection.introduction.rank), toText(fault));
    return false;
  }
  return std::all_of(frames.begin(), frames.end(),
                     [&](const Frame& frame) { return takeReport(connection, frame); });
}

// Of a rank that ended its half of the connection: one that had reported leaves, and may still want
// to hear whether it was in time (RootClient::awaitAnswer).
bool Root::isOwedAnswer(const Connection& connection) {
  if (!connection.hasReported) return false;
  meeting_.leave(connection.introduction.rank, "closed its connection");
  return true;
}

bool Root::takeReport(Connection& connection, const Frame& frame) {
  if (connection.hasReported || frame.type != FrameType::kReport) return false;
  const std::optional<Report> report = decodeReport(frame.payload);
  // The hello was authenticated for one rank; the report may not speak for another.
  if (!report || report->rank != connection.introduction.rank) return false;
  connection.hasReported = true;
  if (meeting_.isOver()) {
    connection.refusal = meeting_.failureFor(*report);
    // With a fixed address a late-comer is early for the next job, whose root it finds when it
    // tries again.
    return !options_.isReusable;
  }
  meeting_.arrive(*report, options_.clock->now());
  settle();
  return true;
}

void Root::drop(Connections::iterator which, std::string_view why) {
  const Connection& connection = which->second;
  if (connection.hasReported && !connection.isAnswered) {
    meeting_.leave(connection.introduction.rank, why);
  }
  connections_.erase(which);
}

// Those that know the secret but do not say what they came for. A report that lies there unread, as
// this thread had no CPU, has come.
void Root::dropSilent(Instant now) {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto at = next++;
    Connection& connection = at->second;
    if (connection.hasReported || connection.reportDeadline > now) continue;
    if (!onReadable(connection) || !connection.hasReported) drop(at, "closed its connection");
  }
}

// Removes none: the service thread may be looking at them.
void Root::answerAll() {
  if (!meeting_.isOver()) return;
  for (auto& [key, connection] : connections_) {
    if (connection.hasReported && !connection.isAnswered) answer(key, connection);
  }
}

void Root::answer(uint64_t key, Connection& connection) {
  const bool isGood = meeting_.state() == Meeting::State::kMet && connection.refusal.ok();
  const Status refusal =
      connection.refusal.ok() ? meeting_.failure() : std::move(connection.refusal);
  const std::vector<std::byte> payload =
      isGood ? encode(meeting_.answerFor(connection.introduction.rank)) : encode(refusal);
  connection.encoder.append(isGood ? FrameType::kAnswer : FrameType::kFailure, payload, {},
                            connection.out);
  connection.isAnswered = true;
  connection.isDone = flush(connection);
  poller_->change(connection.fd.get(), key, Interest::kReadWrite);
}

// True when nothing is left to write, or nobody to write to: the connection may be closed.
bool Root::flush(Connection& connection) {
  const std::span<const std::byte> rest = std::span(connection.out).subspan(connection.written);
  const IoResult result = writeSome(connection.fd.get(), rest);
  if (result.state == IoState::kClosed) return true;
  connection.written += result.count;
  return connection.written == connection.out.size();
}

bool Root::isAnswering() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& entry) { return entry.second.isAnswered; });
}

// Who comes after the end shall hear why there is nothing to join, for a while.
bool Root::isWaitingForLateComers() const {
  const bool hasServedItsProcess = hadLocalUser_ && meeting_.state() == Meeting::State::kMet;
  return poller_ && !options_.isReusable && !hasServedItsProcess;
}

bool Root::mayEnd(Instant now) const {
  if (!overSince_ || (localUsers_ > 0 && !options_.isReusable)) return false;
  if (*overSince_ + options_.timeout <= now) return true;
  return !isAnswering() && !isWaitingForLateComers();
}

std::optional<Instant> Root::nextTime() const {
  std::optional<Instant> next = earlier(meeting_.deadline(), acceptor_->nextTime());
  next = earlier(next, meeting_.noticeTime());
  for (const auto& [key, connection] : connections_) {
    if (!connection.hasReported) next = earlier(next, connection.reportDeadline);
  }
  const bool isLingering = overSince_ && localUsers_ == 0;
  return isLingering ? earlier(next, *overSince_ + options_.timeout) : next;
}

// The end of the thread.
bool Root::close() {
  const Acceptor::Counters& counters = acceptor_->counters();
  log::info(
      log::Subsystem::kBootstrap,
      "root of job {} ends: {} connections admitted, {} refused, {} timed out, {} evicted, {} "
      "left early",
      options_.job, counters.admitted, counters.refused, counters.timedOut, counters.evicted,
      counters.left);
  connections_.clear();
  acceptor_.reset();
  isFinished_ = true;
  changed_.notify_all();
  return false;
}

}  // namespace tutti::bootstrap
