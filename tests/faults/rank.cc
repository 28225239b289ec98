// One rank as a process, driven by arguments: what the tests of this folder put into trouble.
//
//   fault_rank RANK COUNT STEP...
//
// Rank 0 prints "id HEX"; the others print "ready" and read that line from standard input. Each
// step then prints "STEP CODE MILLISECONDS MESSAGE", with line feeds of the message as "\n". The
// first step is "init" unless one of the steps is called so. CODE is ncclNumResults when a
// result is wrong.
//
// Calls, with buffers of ncclMemAlloc where FAULT_SHARED is set, and on a host stream, which is
// waited for, where FAULT_STREAM is:
//   init[:nonblocking]   (FAULT_COMM_NAME: its name)   allreduce:COUNT[:float|int[:sum|max]]
//   broadcast:COUNT:ROOT allgather|reducescatter|alltoall:COUNT   reduce|gather|scatter:COUNT:ROOT
//   send|recv:PEER:COUNT   sendrecv:COUNT (to the next rank, from the one before)
//   loop[:CALL...]       the call (an all-reduce of 64) until it fails
//   times:N:CALL...      the call N times
//   lives:N              N times init, an all-reduce and destroy of another communicator of the
//   same
//                        ranks; CODE 96 where the process then holds more than after the first ten
//   solo                 a communicator of this process alone, used and destroyed
//   slow:MS:N            N all-reduces with a pause before each
//   group   endgroup     ncclGroupStart, ncclGroupEnd
//   split:COLOR:KEY   shrink:RANKS[:abort]   (RANKS as 1,2; the child takes the communicator's
//   place, and its ranks' numbers count from there; after an error it stays)   destroy   finalize
//   revoke   abort
//   parent               the first communicator of all takes its place again
//   untouched:MS         nothing writes into the last call's buffers for so long
//   abortafter:MS        from another thread; prints its own line "aborted", whose message is how
//                        many milliseconds it took
// When all steps are done and FAULT_LOOKS is set, the process ends its communicators, uses one
// more, and prints the line "left", whose message is what it then holds that it did not hold at
// first: nothing. The process:
//   sleep:MS   spin:MS   line (waits for a line on stdin)   crash   throw
//   exit (without destroy)   exitlate (a destructor of a static object destroys it)
//   atsignal:exit|_exit (in the handler of SIGUSR2)
//   limit:nofile|as|nproc|memlock|stack:N (soft)   timer:HZ (SIGALRM)   idle (SCHED_IDLE)
//   inject:malloc|mmap|memfd|truncate|thread|death|stop|reset|latewrite:N[:all]   clock:SECONDS
//   (see inject.h)
//   fds   threads   injected:KIND    how many there are, or calls of that kind, as the message
#include <nccl.h>
#include <tutti/host.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "call_buffers.h"
#include "holdings.h"
#include "process_steps.h"

namespace {

using tutti::faults::CallBuffer;
using tutti::faults::Holdings;
using tutti::faults::kNoSuchStep;
using tutti::faults::Outcome;
using tutti::faults::processSteps;
using tutti::faults::spanOf;
using tutti::faults::Step;
using tutti::faults::tooMuch;
using Clock = std::chrono::steady_clock;

constexpr int kWritten = 97;
constexpr int kHeld = 96;
constexpr long kMostGrowthKiB = 2048;  // of all lives together
constexpr size_t kMostComms = 64;      // of a process, in its steps

Step split(const std::string& step, char separator) {
  Step parts;
  for (size_t start = 0;;) {
    const size_t end = step.find(separator, start);
    parts.push_back(step.substr(start, end - start));
    if (end == std::string::npos) return parts;
    start = end + 1;
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\n' ? std::string("\\n") : std::string(1, c);
  return result;
}

Outcome outcomeOf(ncclResult_t result) {
  const bool isBad = result != ncclSuccess && result != ncclInProgress;
  return {static_cast<int>(result), isBad ? ncclGetLastError(nullptr) : ""};
}

long milliseconds(Clock::duration span) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
}

// Lines of several threads stay whole.
void printLine(const std::string& step, const Outcome& outcome, Clock::duration spent) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::printf("%s %d %ld %s\n", step.c_str(), outcome.code, milliseconds(spent),
              escaped(outcome.message).c_str());
  std::fflush(stdout);
}

// As a program does whose objects live to the end.
[[noreturn]] void destroyAtExit(ncclComm_t comm) {
  struct Owner {
    ncclComm_t comm;
    ~Owner() {
      if (ncclCommDestroy(comm) != ncclSuccess) std::_Exit(4);
    }
  };
  static const Owner owner{comm};
  std::exit(0);
}

// Threads may have been joined, and connections closed, by services in their own time; what waits
// for others does so for some time-outs.
std::string heldBeyond(const Holdings& before, const std::function<void()>& meanwhile) {
  const char* timeoutMs = std::getenv("TUTTI_TIMEOUT_MS");
  const auto deadline = Clock::now() + std::chrono::seconds(2) +
                        std::chrono::milliseconds(4 * (timeoutMs ? std::atol(timeoutMs) : 0));
  std::string text;
  while (!(text = tooMuch(Holdings(), before)).empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    meanwhile();
  }
  return text;
}

long residentKiB() {
  const std::string status = tutti::faults::contents("/proc/self/status");
  return std::atol(status.c_str() + status.find("VmRSS:") + 6);
}

class Rank {
 public:
  Rank(int rank, int count) : rank_(rank), count_(count) { comms_.reserve(kMostComms); }

  void joinThreads() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // Ends all communicators that are left; an error when none can be made any more.
  ncclResult_t end() {
    buffers_.clear();
    for (ncclComm_t comm : comms_) {
      ncclResult_t state = ncclSuccess;
      const bool isWell =
          ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess;
      static_cast<void>(isWell ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    }
    comms_.clear();
    if (stream_ != nullptr) static_cast<void>(ncclTuttiStreamDestroy(stream_));
    // That address is one of rank 0's host, where all ids of this process lead.
    return std::getenv("NCCL_COMM_ID") != nullptr ? ncclSuccess : solo();
  }

  // What an earlier job's root has left, which waited for late-comers, goes with the next job; one
  // may be impossible where the test took the network away.
  static void putAway() {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    if (ncclGetUniqueId(&id) != ncclSuccess) return;
    if (ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) return;
    static_cast<void>(ncclCommDestroy(comm));
  }

  Outcome run(const std::string& text, const ncclUniqueId& id) {
    const Step step = split(text, ':');
    const std::string& verb = step[0];
    if (const auto found = processSteps().find(verb); found != processSteps().end())
      return found->second(step);
    if (verb == "init") return outcomeOf(init(step, id));
    if (verb == "solo") return outcomeOf(solo());
    if (verb == "untouched") return expectUntouched(step);
    if (comm_ == nullptr) return {kNoSuchStep, "no communicator"};
    if (verb == "loop") return outcomeOf(repeat(step, 1, SIZE_MAX));
    if (verb == "times") return outcomeOf(repeat(step, 2, std::stoul(step.at(1))));
    if (verb == "slow") return outcomeOf(slow(step));
    if (verb == "lives") return live(std::stoi(step.at(1)));
    if (verb == "abortafter") return abortLater(step);
    if (verb == "exitlate") destroyAtExit(comm_);
    return outcomeOf(call(step));
  }

 private:
  ncclResult_t init(const Step& step, const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = step.size() > 1 ? 0 : 1;
    config.commName = std::getenv("FAULT_COMM_NAME");
    if (std::getenv("FAULT_STREAM") != nullptr && stream_ == nullptr &&
        ncclTuttiStreamCreate(&stream_) != ncclSuccess)
      return ncclSystemError;
    const ncclResult_t result = ncclCommInitRankConfig(&comm_, count_, id, rank_, &config);
    if (comm_ != nullptr) keep(comm_);
    return result;
  }

  // The process itself is well: a communicator of its own works.
  static ncclResult_t solo() {
    ncclComm_t comm = nullptr;
    float value = 1;
    ncclResult_t result = ncclCommInitAll(&comm, 1, nullptr);
    if (result == ncclSuccess)
      result = ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr);
    return result == ncclSuccess ? ncclCommDestroy(comm) : result;
  }

  ncclResult_t repeat(const Step& step, size_t at, size_t times) {
    Step inner(step.begin() + static_cast<long>(at), step.end());
    if (inner.empty()) inner = {"allreduce", "64"};
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < times && result == ncclSuccess; ++i) {
      result = call(inner);
      if (i == 0 && result == ncclSuccess) printLine("underway", {}, {});  // its links are there
    }
    return result;
  }

  Outcome live(int times) {
    constexpr int kFirst = 10;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < kFirst && result == ncclSuccess; ++i) result = oneLife();
    const Holdings before;
    const long resident = residentKiB();
    for (int i = 0; i < times && result == ncclSuccess; ++i) result = oneLife();
    if (result != ncclSuccess) return outcomeOf(result);
    std::string more = heldBeyond(before, [] {});
    if (residentKiB() > resident + kMostGrowthKiB)
      more += std::to_string(residentKiB() - resident) + " KiB more are resident";
    return {more.empty() ? 0 : kHeld, more};
  }

  // Of a communicator of the same ranks, whose id travels by this one.
  ncclResult_t oneLife() {
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    ncclResult_t result = rank_ == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (result == ncclSuccess)
      result = ncclBroadcast(&id, &id, sizeof id, ncclChar, 0, comm_, nullptr);
    if (result == ncclSuccess) result = ncclCommInitRank(&comm, count_, id, rank_);
    int sum = 1;
    if (result == ncclSuccess)
      result = ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, comm, nullptr);
    if (result == ncclSuccess && sum != count_) result = ncclNumResults;
    return result == ncclSuccess ? ncclCommDestroy(comm) : result;
  }

  ncclResult_t slow(const Step& step) {
    ncclResult_t result = ncclSuccess;
    for (size_t i = std::stoul(step.at(2)); i > 0 && result == ncclSuccess; --i) {
      std::this_thread::sleep_for(spanOf(step));
      result = call({"allreduce", "64"});
    }
    return result;
  }

  Outcome abortLater(const Step& step) {
    threads_.emplace_back([this, span = spanOf(step)] {
      std::this_thread::sleep_for(span);
      const auto start = Clock::now();
      forget(comm_);
      Outcome outcome = outcomeOf(ncclCommAbort(comm_));
      const auto spent = Clock::now() - start;
      if (outcome.code == 0) outcome.message = std::to_string(milliseconds(spent));
      printLine("aborted", outcome, spent);
    });
    return {};
  }

  Outcome expectUntouched(const Step& step) {
    constexpr float kMine = -7.0f;
    for (CallBuffer& memory : buffers_) std::ranges::fill(memory, kMine);
    std::this_thread::sleep_for(spanOf(step));
    long strange = 0;
    for (const CallBuffer& memory : buffers_)
      strange += std::ranges::count_if(memory, [](float each) { return each != kMine; });
    return {strange == 0 ? 0 : kWritten, std::to_string(strange) + " elements were written"};
  }

  ncclResult_t call(const Step& step) {
    const std::string& verb = step[0];
    if (!isGrouped_) buffers_.clear();
    if (verb == "group") {
      isGrouped_ = true;
      return ncclGroupStart();
    }
    if (verb == "endgroup") {
      isGrouped_ = false;
      return settled(ncclGroupEnd());
    }
    if (verb == "destroy" || verb == "abort") forget(comm_);
    if (verb == "destroy") return ncclCommDestroy(comm_);
    if (verb == "finalize") return ncclCommFinalize(comm_);
    if (verb == "revoke") return ncclCommRevoke(comm_, 0);
    if (verb == "abort") return ncclCommAbort(comm_);
    if (verb == "split" || verb == "shrink") return derive(step);
    if (verb == "parent") return take(comms_.front());
    if (verb == "send" || verb == "recv") return settled(transfer(step));
    return settled(collective(step));
  }

  // Of calls on a stream, what came of them.
  ncclResult_t settled(ncclResult_t result) {
    if (stream_ == nullptr || isGrouped_) return result;
    const ncclResult_t waited = ncclTuttiStreamSynchronize(stream_);
    ncclResult_t state = ncclSuccess;
    if (result == ncclSuccess) result = waited;
    if (result == ncclSuccess) result = ncclCommGetAsyncError(comm_, &state);
    if (result != ncclSuccess || state == ncclSuccess) return result;
    ncclGetLastError(comm_);  // from now on this thread's
    return state;
  }

  ncclResult_t derive(const Step& step) {
    ncclComm_t child = nullptr;
    ncclResult_t result = ncclSuccess;
    if (step[0] == "split") {
      result = ncclCommSplit(comm_, std::stoi(step.at(1)), std::stoi(step.at(2)), &child, nullptr);
    } else {
      std::vector<int> excluded;
      for (const std::string& rank : split(step.at(1), ',')) excluded.push_back(std::stoi(rank));
      result = ncclCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &child,
                              nullptr, step.size() > 2 ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
    }
    if (result != ncclSuccess) return result;
    keep(child);
    return take(child);
  }

  ncclResult_t take(ncclComm_t comm) {
    comm_ = comm;
    ncclCommUserRank(comm_, &rank_);
    return ncclCommCount(comm_, &count_);
  }

  ncclResult_t transfer(const Step& step) {
    const int peer = std::stoi(step.at(1));
    const size_t count = std::stoul(step.at(2));
    if (step[0] == "send") return ncclSend(input(count), count, ncclFloat, peer, comm_, stream_);
    return ncclRecv(output(count), count, ncclFloat, peer, comm_, stream_);
  }

  ncclResult_t collective(const Step& step) {
    const std::string& verb = step[0];
    const size_t count = std::stoul(step.at(1));
    const size_t all = count * static_cast<size_t>(count_);
    if (verb == "allreduce") return allReduce(step, count);
    if (verb == "allgather")
      return ncclAllGather(input(count), output(all), count, ncclFloat, comm_, stream_);
    if (verb == "reducescatter") {
      return ncclReduceScatter(input(all), output(count), count, ncclFloat, ncclSum, comm_,
                               stream_);
    }
    if (verb == "alltoall")
      return ncclAlltoAll(input(all), output(all), count, ncclFloat, comm_, stream_);
    if (verb == "sendrecv") return sendAround(count);
    const int root = std::stoi(step.at(2));
    if (verb == "gather")
      return ncclGather(input(count), output(all), count, ncclFloat, root, comm_, stream_);
    if (verb == "scatter")
      return ncclScatter(input(all), output(count), count, ncclFloat, root, comm_, stream_);
    if (verb == "reduce")
      return ncclReduce(input(count), output(count), count, ncclFloat, ncclSum, root, comm_,
                        stream_);
    if (verb == "broadcast")
      return ncclBroadcast(input(count), output(count), count, ncclFloat, root, comm_, stream_);
    throw std::invalid_argument("no step is called " + verb);
  }

  ncclResult_t sendAround(size_t count) {
    const float* sent = input(count);
    float* received = output(count);
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    static_cast<void>(ncclSend(sent, count, ncclFloat, (rank_ + 1) % count_, comm_, stream_));
    static_cast<void>(
        ncclRecv(received, count, ncclFloat, (rank_ + count_ - 1) % count_, comm_, stream_));
    return ncclGroupEnd();  // with the first error of the two
  }

  // The only one whose result is looked at: it shows that the communicator is well.
  ncclResult_t allReduce(const Step& step, size_t count) {
    const bool isInt = step.size() > 2 && step[2] == "int";
    const bool isMax = step.size() > 3 && step[3] == "max";
    const float* own = input(count);
    float* sum = output(count);
    const ncclResult_t result = settled(ncclAllReduce(own, sum, count, isInt ? ncclInt : ncclFloat,
                                                      isMax ? ncclMax : ncclSum, comm_, stream_));
    if (result != ncclSuccess || isInt || isMax || count == 0 || isGrouped_) return result;
    const float wanted = static_cast<float>(count_) * static_cast<float>(count_ + 1) / 2;
    const bool isRight = sum[0] == wanted && sum[count / 2] == wanted && sum[count - 1] == wanted;
    return isRight ? result : ncclNumResults;
  }

  void keep(ncclComm_t comm) {
    std::lock_guard lock(mutex_);
    comms_.push_back(comm);  // allocates nothing, for a process that may not
  }
  void forget(ncclComm_t comm) {
    std::lock_guard lock(mutex_);
    std::erase(comms_, comm);
  }

  // Of a group's calls, buffers live until its end.
  float* buffer(size_t count, float value) { return buffers_.emplace_back(count, value).data(); }
  const float* input(size_t count) { return buffer(count, static_cast<float>(rank_ + 1)); }
  float* output(size_t count) { return buffer(count, -1.0f); }

  int rank_;
  int count_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;  // of the host
  bool isGrouped_ = false;
  std::deque<CallBuffer> buffers_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::vector<ncclComm_t> comms_;  // that this process has not ended; guarded by mutex_
};

ncclUniqueId meet(int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != ncclSuccess) std::exit(3);
    std::printf("id ");
    for (const char c : id.internal) std::printf("%02x", static_cast<unsigned char>(c));
    std::printf("\n");
    std::fflush(stdout);
    return id;
  }
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < line.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(line.substr(2 * i, 2), nullptr, 16));
  return id;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int number = std::atoi(argv[1]);
  const Holdings before;
  const ncclUniqueId id = meet(number);
  std::vector<std::string> steps(argv + 3, argv + argc);
  bool hasInit = false;
  for (const std::string& step : steps) hasInit |= step.starts_with("init");
  if (!hasInit) steps.insert(steps.begin(), "init");
  Rank rank(number, std::atoi(argv[2]));
  const auto take = [](const std::string& step, const auto& body) {
    const auto start = Clock::now();
    try {
      const Outcome outcome = body();
      printLine(step, outcome, Clock::now() - start);
    } catch (const std::bad_alloc&) {  // the library lets none out, so it is one of ours
      printLine(step, {kNoSuchStep, "this program has no memory"}, Clock::now() - start);
    }
  };
  for (const std::string& step : steps) take(step, [&] { return rank.run(step, id); });
  rank.joinThreads();
  if (std::getenv("FAULT_LOOKS") == nullptr) std::_Exit(0);
  take("left", [&] {
    const ncclResult_t result = rank.end();
    return Outcome{static_cast<int>(result), heldBeyond(before, Rank::putAway)};
  });
  std::_Exit(0);
}
