#include "net/verbs/events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>

#include "base/log.h"
#include "base/service_thread.h"

namespace tutti::net::verbs {

Result<std::unique_ptr<EventWatcher>> EventWatcher::start(Options options) {
  std::unique_ptr<EventWatcher> watcher(new EventWatcher(std::move(options)));
  watcher->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watcher->stop_) return check(errno, "eventfd", "the thread of adapters' events");
  for (Adapter* adapter : watcher->options_.adapters) {
    const int fd = adapter->context()->async_fd;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
      return check(errno, "fcntl", fmt::format("the events of {}", adapter->name()));
  }
  TUTTI_TRY_ASSIGN(watcher->thread_,
                   startThread("tutti-ibevents", [own = watcher.get()] { own->run(); }));
  return watcher;
}

EventWatcher::~EventWatcher() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void EventWatcher::run() {
  std::vector<pollfd> places{{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (Adapter* adapter : options_.adapters)
    places.push_back({.fd = adapter->context()->async_fd, .events = POLLIN, .revents = 0});
  for (;;) {
    if (::poll(places.data(), places.size(), -1) < 0 && errno != EINTR) return;
    if (places.front().revents != 0) return;
    for (size_t i = 0; i < options_.adapters.size(); ++i) {
      pollfd& place = places[i + 1];
      if (place.revents != 0 && !take(*options_.adapters[i])) place.fd = -1;
    }
  }
}

bool EventWatcher::take(Adapter& adapter) {
  ::ibv_async_event event{};
  if (options_.library.getEvent(adapter.context(), &event) == 0) {
    handle(adapter, event);
    options_.library.acknowledgeEvent(&event);
    return true;
  }
  if (errno == EAGAIN || errno == EINTR) return true;
  const Status trouble = check(errno, "ibv_get_async_event", adapter.name());
  log::warn("{}: it was taken away", trouble.message());
  adapter.fail(fmt::format("adapter {} was taken away: {}", adapter.name(), trouble.message()));
  return false;
}

void EventWatcher::handle(Adapter& adapter, const ::ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      log::warn("adapter {} failed: {}", adapter.name(),
                options_.library.eventName(event.event_type));
      if (options_.endsLanes) {
        adapter.fail(fmt::format("adapter {} failed or was removed ({}); the kernel's log says why",
                                 adapter.name(), options_.library.eventName(event.event_type)));
      }
      return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE: return handlePort(adapter, event);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      return alarm(event.element.qp->qp_context, adapter, event.event_type);
    case IBV_EVENT_CQ_ERR: return alarm(event.element.cq->cq_context, adapter, event.event_type);
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
      log::warn("adapter {}: {}: links made before may fail", adapter.name(),
                options_.library.eventName(event.event_type));
      return;
    default:
      log::info(log::Subsystem::kNet, "adapter {}: {}", adapter.name(),
                options_.library.eventName(event.event_type));
  }
}

// A port that comes back in time has cost nothing but time: adapters send anew what was not
// acknowledged. So going down is no failure yet.
void EventWatcher::handlePort(Adapter& adapter, const ::ibv_async_event& event) {
  const bool isDown = event.event_type == IBV_EVENT_PORT_ERR;
  for (const auto& port : adapter.ports()) {
    if (port->number != event.element.port_num) continue;
    log::warn("port {} {}", port->name, isDown ? "went down" : "is back");
    if (!options_.endsLanes) continue;
    port->downSince.store(isDown ? static_cast<int64_t>(options_.clock.now()) : 0,
                          std::memory_order_relaxed);
  }
}

void EventWatcher::alarm(void* context, Adapter& adapter, ::ibv_event_type type) {
  log::warn("adapter {}: {}", adapter.name(), options_.library.eventName(type));
  if (options_.endsLanes)
    static_cast<Alarm*>(context)->event.store(static_cast<int>(type), std::memory_order_relaxed);
}

}  // namespace tutti::net::verbs
