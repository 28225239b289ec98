// One thread a process that looks after what nobody waits for in time: deadlines of operations,
// signals that come while the main thread waits, the end of the interpreter.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "operation.h"

namespace tutti::pytorch {

class Watched {
 public:
  // Ends operations whose time is up.
  virtual void look(Instant now) = 0;
  // A signal wants the main thread: ends what it waits for, or, with `any`, whatever is waited for.
  virtual void interrupt(bool any) = 0;
  // The process ends.
  virtual void leave() = 0;
  virtual ~Watched() = default;
};

// Any thread.
class Warden {
 public:
  explicit Warden(SignalCheck signals) : signals_(signals) {}
  ~Warden();
  Warden(const Warden&) = delete;
  Warden& operator=(const Warden&) = delete;

  SignalCheck signals() const { return signals_; }
  void watch(Watched* watched);
  // Afterwards it is not called any more.
  void forget(Watched* watched);
  void interrupt(bool any);
  // At the interpreter's end: everything leaves, and the thread ends.
  void leave();

 private:
  static constexpr Milliseconds kRound{100};
  void patrol();
  // Calls each that is still watched when its turn comes: ending an operation can end a process
  // group, by a callback.
  template <typename Call>
  void forEach(Call call);

  const SignalCheck signals_;
  std::recursive_mutex mutex_;  // for those callbacks
  std::condition_variable_any changed_;
  std::unordered_set<Watched*> watched_;
  bool isOver_ = false;
  int process_ = 0;                      // that the thread runs in
  std::unique_ptr<std::thread> thread_;  // a fork leaves it behind
};

}  // namespace tutti::pytorch
