// A stream of the fake's: a thread, which does what was put, in order; or a capture's graph.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "fakes/cuda/entry.h"

namespace fakes::cuda {

using Work = std::function<void()>;

// cuUserObjectCreate's.
struct UserObject {
  void* argument;
  void (*destroy)(void*);
  ~UserObject() { destroy(argument); }
};

struct Graph {
  std::vector<Work> nodes;
  std::vector<void*> waits;    // events that it waits for before all else
  std::vector<void*> records;  // and those that it records in the end
  std::vector<std::shared_ptr<UserObject>> objects;
};

// Where FAKE_CUDA_DELAY_US is set: what is on a stream begins up to so much later, each time
// another time.
class Delay {
 public:
  explicit Delay(uint64_t seed) : rng_(seed) {}
  void wait() {
    if (most_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(most_)));
  }

 private:
  static uint64_t most() {
    const char* text = std::getenv("FAKE_CUDA_DELAY_US");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }
  const uint64_t most_ = most();
  tutti::SeededRng rng_;
};

struct Stream {
  // Whoever puts more waits, as with a GPU's.
  static constexpr size_t kMostQueued = 1024;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool isEnding = false;
  bool isCapturing = false;
  bool isBroken = false;  // the capture
  int captureMode = 0;
  std::thread::id captor;
  const unsigned long long id = nextId();
  unsigned long long capture = 0;
  Graph graph;
  void* last = nullptr;  // its newest node, as cuStreamGetCaptureInfo gave it
  Delay delay{id};
  std::thread thread{[this] { run(); }};

  ~Stream() {
    {
      const std::lock_guard lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    thread.join();
  }

  int put(Work work) {
    std::unique_lock lock(mutex);
    if (isBroken) return kCaptureInvalidated;
    if (isCapturing) {
      graph.nodes.push_back(std::move(work));
    } else {
      changed.wait(lock, [this] { return queue.size() < kMostQueued; });
      queue.push_back(std::move(work));
      changed.notify_all();
    }
    return kSuccess;
  }
  // For what a capture forbids.
  bool breakCapture() {
    const std::lock_guard lock(mutex);
    if (isCapturing) isBroken = true;
    return isCapturing;
  }

 private:
  static unsigned long long nextId() {
    static std::atomic<unsigned long long> last{0};
    return ++last;
  }
  void run() {
    for (;;) {
      Work next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return isEnding || !queue.empty(); });
        if (queue.empty()) return;
        next = std::move(queue.front());
        queue.pop_front();
        if (queue.size() + 1 == kMostQueued) changed.notify_all();
      }
      delay.wait();
      next();
    }
  }
};

// Streams that are captured.
struct Captures {
  std::mutex mutex;
  std::set<Stream*> streams;
};
Captures& captures();

// Null: the legacy stream.
Stream& streamOf(void* handle);

// Waits for what the event has been recorded behind so far; empty: nothing.
Work waitFor(void* event);
// Records it there.
Work recordOf(void* event);

}  // namespace fakes::cuda
