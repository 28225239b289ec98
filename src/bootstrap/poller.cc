#include "bootstrap/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::bootstrap {
namespace {

epoll_event eventFor(uint64_t key, Interest interest) {
  epoll_event event{};
  switch (interest) {
    case Interest::kNone: break;
    case Interest::kRead: event.events = EPOLLIN; break;
    case Interest::kReadWrite: event.events = EPOLLIN | EPOLLOUT; break;
  }
  event.data.u64 = key;
  return event;
}

}  // namespace

Poller::Poller(UniqueFd epoll, UniqueFd event)
    : epoll_(std::move(epoll)), event_(std::move(event)) {}

Result<std::unique_ptr<Poller>> Poller::open() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return systemError("epoll_create1", "for the bootstrap", errno);
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return systemError("eventfd", "for the bootstrap", errno);
  std::unique_ptr<Poller> poller(new Poller(std::move(epoll), std::move(event)));
  TUTTI_TRY(poller->add(poller->event_.get(), kWakeKey, Interest::kRead));
  return poller;
}

Status Poller::add(int fd, uint64_t key, Interest interest) {
  epoll_event event = eventFor(key, interest);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return systemError("epoll_ctl", "for the bootstrap", errno);
  }
  return {};
}

void Poller::change(int fd, uint64_t key, Interest interest) {
  epoll_event event = eventFor(key, interest);
  // Cannot fail for an fd that add() took and that is open.
  [[maybe_unused]] int ignored = ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) {
  [[maybe_unused]] int ignored = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const Poller::Event> Poller::wait(Clock& clock, std::optional<Instant> deadline) {
  std::array<epoll_event, kMaxEvents> ready;
  const int count =
      ::epoll_wait(epoll_.get(), ready.data(), kMaxEvents, millisecondsUntil(clock, deadline));
  size_t filled = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeKey) {
      drainWakes();
      continue;
    }
    const bool isBroken = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
    events_[filled++] = {.key = event.data.u64,
                         .isReadable = isBroken || (event.events & EPOLLIN) != 0,
                         .isWritable = isBroken || (event.events & EPOLLOUT) != 0};
  }
  return std::span(events_).first(filled);
}

void Poller::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then a wake-up is pending anyway.
  [[maybe_unused]] ssize_t ignored = ::write(event_.get(), &one, sizeof one);
}

void Poller::drainWakes() {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t ignored = ::read(event_.get(), &count, sizeof count);
}

std::optional<Instant> earlier(std::optional<Instant> a, std::optional<Instant> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

int millisecondsUntil(Clock& clock, std::optional<Instant> deadline) {
  if (!deadline) return -1;
  const Nanoseconds left = *deadline - clock.now();
  if (left.count() <= 0) return 0;
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<int64_t>(milliseconds, 60'000));
}

void pauseFor(std::chrono::milliseconds span) {
  // A signal may cut it short; the caller tries again a little earlier then.
  [[maybe_unused]] int ignored = ::poll(nullptr, 0, static_cast<int>(span.count()));
}

}  // namespace tutti::bootstrap
