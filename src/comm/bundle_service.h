// BundleService: writes bundles (observe/bundle.h) of this process and its communicators, when
// somebody sends the signal for it and when a communicator has its verdict.
//
// One a process, and only where TUTTI_BUNDLE_DIR is set, or a signal is named: then it logs what
// each of the process's ranks and links does. It has a thread of its own,
// "tutti-bundle", which sleeps in a read: writing may take as long as a full disk or a lost file
// server likes, and the other service threads owe their peers an answer within the timeout.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "observe/examination.h"
#include "observe/link_state.h"

namespace tutti::comm {

class BundleService {
 public:
  struct Options {
    std::string folder;    // empty: a signal has the log told
    std::string settings;  // in effect, as text
    int signal = SIGUSR1;  // NCCL_PROXY_DUMP_SIGNAL
    // The links of this process as they are now; any thread. Empty: none are told of.
    std::function<std::vector<observe::LinkState>()> links{};
  };

  // Takes the signal, unless the program has it; that is logged, as is a folder that cannot be
  // written to. The error is logged: there is no descriptor or thread left.
  static Result<std::unique_ptr<BundleService>> start(Options options);
  ~BundleService();
  BundleService(const BundleService&) = delete;
  BundleService& operator=(const BundleService&) = delete;

  // REQUIRES: there is a folder. A communicator has its verdict. Any thread; does not wait: the
  // board and the links are read now, as nothing of them may be left soon, and the rest is done by
  // the service's thread.
  void verdictGiven(const observe::Board& board);

  // The process ends: the signal is the program's again, and what was asked for before is written
  // if that is possible within `bound`.
  void finish(Nanoseconds bound);

 private:
  explicit BundleService(Options options) : options_(std::move(options)) {}

  void wake(uint64_t what);
  void serve();
  void writeFailed();
  void answerSignal();
  std::vector<observe::LinkState> links() const;
  static void tell(const std::string& cause, const std::vector<observe::Examination>& found,
                   const std::vector<observe::LinkState>& links);
  void write(std::string cause, std::vector<observe::Examination> found,
             std::vector<observe::LinkState> links);

  // Constant once started.
  const Options options_;
  UniqueFd wakeUp_;  // an eventfd: the signal's handler adds 1, others add their own numbers
  std::thread thread_;

  struct Failed {
    std::string name;
    observe::Evidence evidence;
    std::vector<observe::LinkState> links;
  };
  std::mutex mutex_;            // guards the two below
  std::vector<Failed> failed_;  // with their verdicts; not written yet
  bool hasEnded_ = false;       // the thread
  std::condition_variable ended_;
};

}  // namespace tutti::comm
