#include "base/service_thread.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace tutti {
namespace {

// Blocks signals for as long as it lives: threads started meanwhile inherit that. Not those that a
// thread causes itself, by an access to memory of the program that the program has a handler for.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void runNamed(const char* name, const std::function<void()>& body) {
  pthread_setname_np(pthread_self(), name);
  try {
    body();
  } catch (const std::exception& error) {
    log::warn("thread {} ended: {}; ranks that need it run into their time limit", name,
              error.what());
  }
}

}  // namespace

Result<std::thread> startThread(const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread([name, run = std::move(body)] { runNamed(name, run); });
  } catch (const std::system_error& error) {
    return systemError("start thread", name, error.code().value());
  }
}

}  // namespace tutti
