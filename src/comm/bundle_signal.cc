#include "comm/bundle_signal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tutti::comm {
namespace {

// Written before the handler is there, read by it on any thread: relaxed, sigaction() orders them.
std::atomic<int> signalEventFd{-1};
std::atomic<pid_t> signalOwner{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

// Only what signal-safety(7) allows.
void onSignal(int signal) {
  const int error = errno;
  if (::getpid() == signalOwner.load(std::memory_order_relaxed)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored =
        ::write(signalEventFd.load(std::memory_order_relaxed), &one, sizeof one);
  } else {  // of a parent that was forked: taken by the default as soon as this returns
    ::signal(signal, SIG_DFL);
    ::kill(::getpid(), signal);
  }
  errno = error;
}

std::string ownerOf(const struct sigaction& action) {
  if (action.sa_handler == SIG_IGN) return "the program ignores it";
  Dl_info info{};
  const void* handler = reinterpret_cast<const void*>(action.sa_handler);
  if (::dladdr(handler, &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("the handler at {} has it", handler);
  return fmt::format("{} of {} has it", info.dli_sname == nullptr ? "a handler" : info.dli_sname,
                     info.dli_fname);
}

}  // namespace

std::string nameOfSignal(int signal) {
  return signal == SIGUSR1 ? "SIGUSR1" : fmt::format("signal {}", signal);
}

std::string takeSignal(int signal, int eventFd) {
  struct sigaction before {};
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return ownerOf(before);
  signalEventFd.store(eventFd, std::memory_order_relaxed);
  signalOwner.store(::getpid(), std::memory_order_relaxed);
  struct sigaction ours {};
  ours.sa_handler = onSignal;
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  return ::sigaction(signal, &ours, nullptr) == 0 ? "" : "the system lets nobody handle it";
}

void giveSignalBack(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  if (now.sa_handler == onSignal) ::signal(signal, SIG_DFL);
}

void letSignalIn(int signal) {
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

}  // namespace tutti::comm
