#include "bootstrap/handoff.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/service_thread.h"
#include "bootstrap/bytes.h"
#include "bootstrap/key.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

// The request: magic u64, token 16. The answer: one byte, and the descriptor beside it.
constexpr uint64_t kMagic = 0x9348616e646f6666u;
constexpr size_t kRequestBytes = sizeof kMagic + sizeof(HandoffToken);
using Request = std::array<std::byte, kRequestBytes>;

constexpr size_t kMaxConnections = 64;
constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kRequestTime{5'000};
// How long to leave the queue alone when the process has no descriptor left.
constexpr std::chrono::milliseconds kDescriptorPause{50};

constexpr uint64_t kListenerKey = kMaxConnections;

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

// A zero byte, then the name: no file, and gone with the socket.
UnixAddress abstractAddress(const std::string& name) {
  UnixAddress result;
  result.address.sun_family = AF_UNIX;
  const size_t count = std::min(name.size(), sizeof result.address.sun_path - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), count);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return result;
}

const sockaddr* generic(const UnixAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.address);
}

bool isSameUser(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  return credentials.uid == ::geteuid();
}

Request makeRequest(const HandoffToken& token) {
  Request request;
  storeLittle(request.data(), kMagic);
  std::copy(token.begin(), token.end(), request.begin() + sizeof kMagic);
  return request;
}

// Room for one descriptor beside a message, aligned as the system wants it.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

bool sendDescriptor(int socket, int fd) {
  char byte = 1;
  iovec part{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* entry = CMSG_FIRSTHDR(&message);
  entry->cmsg_level = SOL_SOCKET;
  entry->cmsg_type = SCM_RIGHTS;
  entry->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(entry), &fd, sizeof fd);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == 1;
}

// Empty when nothing has come yet (errno is EAGAIN) or the owner closed (errno is 0).
UniqueFd receiveDescriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return UniqueFd();
  errno = (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : 0;
  const cmsghdr* entry = CMSG_FIRSTHDR(&message);
  if (count == 0 || entry == nullptr || entry->cmsg_level != SOL_SOCKET ||
      entry->cmsg_type != SCM_RIGHTS || entry->cmsg_len != CMSG_LEN(sizeof(int))) {
    return UniqueFd();
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(entry), sizeof fd);
  return UniqueFd(fd);
}

}  // namespace

struct Handoff::Impl {
  struct Offer {
    HandoffToken token{};
    UniqueFd fd;
    int takesLeft = 0;
    std::optional<Instant> end;
  };
  struct Connection {
    UniqueFd fd;
    Instant since{};
    size_t filled = 0;
    Request request{};
  };

  Impl(Rng& source, Clock& time) : rng(source), clock(time) {}
  ~Impl();

  Status start();
  void serve();
  bool serveOnce(std::span<const Poller::Event> events);
  void acceptAll();
  Connection& findPlace();
  void advance(Connection& connection);
  void handOver(Connection& connection);
  std::optional<Instant> nextTime() const;

  Rng& rng;
  Clock& clock;

  std::mutex mutex;  // guards all below
  bool hasFailed = false;
  bool isStopping = false;
  std::string socketName;
  std::list<Offer> offers;
  std::vector<Source> otherSources;  // of what is in no offer; constant once the service runs
  std::array<Connection, kMaxConnections> connections;
  std::optional<Instant> resumeAt;  // set while not accepting
  UniqueFd listener;
  std::unique_ptr<Poller> poller;
  std::thread thread;
};

Handoff::Impl::~Impl() {
  if (!thread.joinable()) return;
  {
    std::lock_guard lock(mutex);
    isStopping = true;
  }
  poller->wake();
  thread.join();
}

Status Handoff::Impl::start() {
  if (thread.joinable()) return {};
  const std::string wanted = "tutti-" + randomHex(rng, 16);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return systemError("socket", "for handing over memory", errno);
  const UnixAddress address = abstractAddress(wanted);
  if (::bind(fd.get(), generic(address), address.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return systemError("bind", "abstract Unix socket " + wanted, errno);
  }
  TUTTI_TRY_ASSIGN(poller, Poller::open());
  TUTTI_TRY(poller->add(fd.get(), kListenerKey, Interest::kRead));
  Result<std::thread> started = startThread("tutti-handoff", [this] { serve(); });
  if (!started.ok()) {
    poller.reset();
    return started.takeStatus();
  }
  thread = std::move(*started);
  listener = std::move(fd);
  socketName = wanted;
  return {};
}

void Handoff::Impl::serve() {
  bool goesOn = true;
  while (goesOn) {
    std::optional<Instant> until;
    {
      std::lock_guard lock(mutex);
      until = nextTime();
    }
    const std::span<const Poller::Event> events = poller->wait(clock, until);
    std::lock_guard lock(mutex);
    goesOn = serveOnce(events);
  }
}

bool Handoff::Impl::serveOnce(std::span<const Poller::Event> events) {
  if (isStopping) return false;
  const Instant now = clock.now();
  offers.remove_if([&](const Offer& offer) { return offer.end && *offer.end <= now; });
  for (const Poller::Event& event : events) {
    if (event.key == kListenerKey) {
      acceptAll();
    } else if (connections[event.key].fd) {
      advance(connections[event.key]);
    }
  }
  for (Connection& connection : connections) {
    if (connection.fd && connection.since + kRequestTime <= now) connection.fd.reset();
  }
  if (resumeAt && *resumeAt <= now) {
    resumeAt.reset();
    poller->change(listener.get(), kListenerKey, Interest::kRead);
  }
  return true;
}

void Handoff::Impl::acceptAll() {
  for (;;) {
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (!fd) {
      resumeAt = clock.now() + kDescriptorPause;
      poller->change(listener.get(), kListenerKey, Interest::kNone);
      return;
    }
    // Before a byte is read.
    if (!isSameUser(fd.get())) continue;
    Connection& connection = findPlace();
    const auto key = static_cast<uint64_t>(&connection - connections.data());
    if (!poller->add(fd.get(), key, Interest::kRead).ok()) continue;
    connection = {.fd = std::move(fd), .since = clock.now()};
  }
}

// A free place, else that of the oldest: who asks in earnest has sent its request with the
// connection.
Handoff::Impl::Connection& Handoff::Impl::findPlace() {
  const auto isFree = [](const Connection& connection) { return !connection.fd; };
  auto found = std::find_if(connections.begin(), connections.end(), isFree);
  if (found != connections.end()) return *found;
  for (Connection& connection : connections) advance(connection);
  found = std::find_if(connections.begin(), connections.end(), isFree);
  if (found != connections.end()) return *found;
  return *std::min_element(
      connections.begin(), connections.end(),
      [](const Connection& a, const Connection& b) { return a.since < b.since; });
}

void Handoff::Impl::advance(Connection& connection) {
  const auto rest = std::span(connection.request).subspan(connection.filled);
  const IoResult read = readSome(connection.fd.get(), rest);
  if (read.state == IoState::kWouldBlock) return;
  connection.filled += read.count;
  if (read.state == IoState::kMoved && connection.filled < kRequestBytes) return;
  if (read.state == IoState::kMoved) handOver(connection);
  connection.fd.reset();
}

void Handoff::Impl::handOver(Connection& connection) {
  if (loadLittle<uint64_t>(connection.request.data()) != kMagic) return;
  const auto token = std::span<const std::byte>(connection.request).subspan(sizeof kMagic);
  // All offers are looked at, each in constant time, so that the time tells nothing about a token.
  auto found = offers.end();
  for (auto offer = offers.begin(); offer != offers.end(); ++offer) {
    if (equalInConstantTime(offer->token, token)) found = offer;
  }
  if (found == offers.end()) {
    HandoffToken wanted;
    std::copy(token.begin(), token.end(), wanted.begin());
    UniqueFd fd;
    for (size_t i = 0; i < otherSources.size() && !fd; ++i) fd = otherSources[i](wanted);
    const bool isDone = fd && sendDescriptor(connection.fd.get(), fd.get());
    if (!isDone) log::info(log::Subsystem::kShm, "refused to hand over memory: no such offer");
    return;
  }
  if (!sendDescriptor(connection.fd.get(), found->fd.get())) return;
  if (--found->takesLeft == 0) offers.erase(found);
}

std::optional<Instant> Handoff::Impl::nextTime() const {
  std::optional<Instant> next = resumeAt;
  for (const Connection& connection : connections) {
    if (connection.fd) next = earlier(next, connection.since + kRequestTime);
  }
  for (const Offer& offer : offers) next = earlier(next, offer.end);
  return next;
}

Handoff::Handoff(Rng& rng, Clock& clock) : impl_(std::make_unique<Impl>(rng, clock)) {}
Handoff::~Handoff() = default;

Result<HandoffToken> Handoff::offer(int fd, int maxTakes,
                                    std::optional<std::chrono::milliseconds> lifetime) {
  if (maxTakes < 1) return invalidArgument("an offer for {} takes, wanted at least 1", maxTakes);
  std::lock_guard lock(impl_->mutex);
  TUTTI_TRY(impl_->start());
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return systemError("dup", "memory to hand over", errno);
  HandoffToken token;
  impl_->rng.fill(token);
  std::optional<Instant> end;
  if (lifetime) end = impl_->clock.now() + *lifetime;
  impl_->offers.push_back({token, std::move(copy), maxTakes, end});
  if (end) impl_->poller->wake();  // it may sleep for longer
  return token;
}

void Handoff::addSource(Source source) {
  std::lock_guard lock(impl_->mutex);
  impl_->otherSources.push_back(std::move(source));
}

void Handoff::withdraw(const HandoffToken& token) {
  std::lock_guard lock(impl_->mutex);
  impl_->offers.remove_if([&](const Impl::Offer& offer) { return offer.token == token; });
}

std::string Handoff::name() {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->hasFailed) impl_->hasFailed = !impl_->start().ok();
  return impl_->socketName;
}

Handoff::Taking::Taking(std::string name, const HandoffToken& token,
                        std::chrono::milliseconds timeout)
    : name_(std::move(name)), token_(token), deadline_(steadyClock().now() + timeout) {}

Result<UniqueFd> Handoff::Taking::poll() {
  if (!hasAsked_) {
    TUTTI_TRY_ASSIGN(const bool isReached, reach());
    if (!isReached) return UniqueFd();
    const Request request = makeRequest(token_);
    if (writeSome(socket_.get(), request).count != request.size())
      return remoteError("the owner of {} closed its socket", name_);
    hasAsked_ = true;
  }
  UniqueFd fd = receiveDescriptor(socket_.get());
  if (fd) return fd;
  if (errno == EMFILE) return systemError("receive memory from", name_, EMFILE);
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    return remoteError(
        "the owner of {} did not hand the memory over: it withdrew the offer, or it has been "
        "taken as often as offered",
        name_);
  }
  if (steadyClock().now() < deadline_) return UniqueFd();
  return remoteError("the owner of {} did not answer in time", name_);
}

// False: the owner's queue is full.
Result<bool> Handoff::Taking::reach() {
  if (name_.empty()) return remoteError("the peer hands no memory over: it has no socket for it");
  if (!socket_) {
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) return systemError("socket", "for taking memory", errno);
  }
  const UnixAddress address = abstractAddress(name_);
  if (::connect(socket_.get(), generic(address), address.size) != 0) {
    const bool mayRetry = errno == EINTR || errno == EAGAIN;
    if (mayRetry && steadyClock().now() < deadline_) return false;
    return remoteError(
        "cannot reach the owner of {} ({}): it has ended, or is in another network namespace",
        name_, errno == EAGAIN ? "its queue is full" : "no such socket");
  }
  if (!isSameUser(socket_.get())) return remoteError("the owner of {} is another user", name_);
  return true;
}

Result<UniqueFd> Handoff::take(const std::string& name, const HandoffToken& token,
                               std::chrono::milliseconds timeout, const std::atomic<bool>* abort) {
  constexpr int kBetweenLooksMs = 50;  // for an abort
  Taking taking(name, token, timeout);
  for (;;) {
    TUTTI_TRY_ASSIGN(UniqueFd fd, taking.poll());
    if (fd) return fd;
    if (abort != nullptr && abort->load(std::memory_order_acquire))
      return Status(Code::kInternalError, "aborted while a peer was to hand over memory");
    if (!taking.hasAsked_) {
      pauseFor(std::chrono::milliseconds(1));
      continue;
    }
    pollfd entry{taking.socket_.get(), POLLIN, 0};
    const int left = millisecondsUntil(steadyClock(), taking.deadline_);
    [[maybe_unused]] const int ready =
        ::poll(&entry, 1, abort == nullptr ? left : std::min(left, kBetweenLooksMs));
  }
}

}  // namespace tutti::bootstrap
