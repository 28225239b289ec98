// What adapters tell by themselves: ports that go and come, queue pairs and adapters that fail. One
// thread ("tutti-ibevents") sleeps until there is something, and leaves word where lanes look.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/verbs/adapter.h"
#include "net/verbs/library.h"

namespace tutti::net::verbs {

// The context that a lane gives its queue pairs and completion queues. Written by the thread of
// events, read by the lane; relaxed, as nothing else is published with it. The object that carries
// it is not destroyed before its events are acknowledged, so it outlives them.
struct Alarm {
  std::atomic<int> event{-1};  // an ibv_event_type
};

class EventWatcher {
 public:
  struct Options {
    const Library& library;
    std::vector<Adapter*> adapters;  // they outlive this
    Clock& clock;
    bool endsLanes = true;  // else events are only told
  };
  static Result<std::unique_ptr<EventWatcher>> start(Options options);
  ~EventWatcher();

 private:
  explicit EventWatcher(Options options) : options_(std::move(options)) {}
  void run();
  // False: the adapter has no more events to tell.
  bool take(Adapter& adapter);
  void handle(Adapter& adapter, const ::ibv_async_event& event);
  void handlePort(Adapter& adapter, const ::ibv_async_event& event);
  void alarm(void* context, Adapter& adapter, ::ibv_event_type type);

  const Options options_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace tutti::net::verbs
