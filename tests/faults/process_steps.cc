#include "process_steps.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "holdings.h"
#include "inject.h"

namespace tutti::faults {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLateWriteMs = 400;

Outcome limit(const Step& step) {
  const std::map<std::string, __rlimit_resource> resources = {{"nofile", RLIMIT_NOFILE},
                                                              {"as", RLIMIT_AS},
                                                              {"nproc", RLIMIT_NPROC},
                                                              {"memlock", RLIMIT_MEMLOCK},
                                                              {"stack", RLIMIT_STACK}};
  rlimit value{};
  const auto which = resources.at(step.at(1));
  ::getrlimit(which, &value);
  value.rlim_cur = step.at(2) == "max" ? value.rlim_max : std::stoul(step[2]);
  return {::setrlimit(which, &value) == 0 ? 0 : errno, ""};
}

Outcome timer(const Step& step) {
  struct sigaction action {};  // no SA_RESTART: calls of the system return EINTR
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const suseconds_t period = 1'000'000 / std::stol(step.at(1));
  const itimerval value{{0, period}, {0, period}};
  return {::setitimer(ITIMER_REAL, &value, nullptr) == 0 ? 0 : errno, ""};
}

struct Injected {
  InjectKind kind;
  int error;
};

Injected injectedBy(const std::string& name) {
  const std::map<std::string, Injected> kinds = {
      {"malloc", {kInjectMalloc, ENOMEM}},
      {"mmap", {kInjectMmap, ENOMEM}},
      {"memfd", {kInjectMemfd, EPERM}},
      {"truncate", {kInjectTruncate, ENOSPC}},
      {"thread", {kInjectThread, EAGAIN}},
      {"death", {kInjectNetworkDeath, 0}},
      {"stop", {kInjectNetworkStop, 0}},
      {"reset", {kInjectReset, ECONNRESET}},
      {"latewrite", {kInjectLateWrite, kLateWriteMs}},
  };
  return kinds.at(name);
}

Outcome inject(const Step& step) {
  auto* arm = reinterpret_cast<InjectFault*>(::dlsym(RTLD_DEFAULT, "injectFault"));
  if (arm == nullptr) return {kNoSuchStep, "inject.c is not preloaded"};
  const Injected kind = injectedBy(step.at(1));
  arm(kind.kind, std::stol(step.at(2)), kind.error, step.size() > 3);
  return {};
}

Outcome countInjected(const Step& step) {
  auto* count = reinterpret_cast<InjectedCalls*>(::dlsym(RTLD_DEFAULT, "injectedCalls"));
  if (count == nullptr) return {kNoSuchStep, "inject.c is not preloaded"};
  return {0, std::to_string(count(injectedBy(step.at(1)).kind))};
}

Outcome jumpClock(const Step& step) {
  auto* jump = reinterpret_cast<InjectClock*>(::dlsym(RTLD_DEFAULT, "injectClock"));
  if (jump == nullptr) return {kNoSuchStep, "inject.c is not preloaded"};
  jump(std::stol(step.at(1)));
  return {};
}

Outcome goIdle(const Step&) {
  const sched_param none{};
  return {::sched_setscheduler(0, SCHED_IDLE, &none) == 0 ? 0 : errno, ""};
}

// From the handler of a signal, as programs do that end at one. `exit` runs destructors there,
// which a thread that the signal finds amid malloc could not.
Outcome endAtSignal(const Step& step) {
  struct sigaction action {};
  action.sa_handler = step.at(1) == "exit" ? [](int) { std::exit(0); } : [](int) { ::_exit(0); };
  return {::sigaction(SIGUSR2, &action, nullptr) == 0 ? 0 : errno, ""};
}

void spin(Clock::duration span) {
  const auto end = Clock::now() + span;
  while (Clock::now() < end) {
  }
}

}  // namespace

std::chrono::milliseconds spanOf(const Step& step, size_t at) {
  return std::chrono::milliseconds(std::stol(step.at(at)));
}

const std::map<std::string, std::function<Outcome(const Step&)>>& processSteps() {
  static const std::map<std::string, std::function<Outcome(const Step&)>> steps = {
      {"sleep",
       [](const Step& step) { return std::this_thread::sleep_for(spanOf(step)), Outcome{}; }},
      {"spin", [](const Step& step) { return spin(spanOf(step)), Outcome{}; }},
      {"line",
       [](const Step&) {
         std::string line;
         std::getline(std::cin, line);
         return Outcome{};
       }},
      {"exit", [](const Step&) -> Outcome { std::exit(0); }},
      {"atsignal", endAtSignal},
      {"crash", [](const Step&) { return ::raise(SIGSEGV), Outcome{}; }},
      {"throw", [](const Step&) -> Outcome { throw std::runtime_error("thrown by the test"); }},
      {"limit", limit},
      {"timer", timer},
      {"inject", inject},
      {"injected", countInjected},
      {"clock", jumpClock},
      {"idle", goIdle},
      {"fds",
       [](const Step&) {
         return Outcome{0, std::to_string(openDescriptors())};
       }},
      {"threads",
       [](const Step&) {
         return Outcome{0, std::to_string(runningThreads())};
       }},
  };
  return steps;
}

}  // namespace tutti::faults
