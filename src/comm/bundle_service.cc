#include "comm/bundle_service.h"

#include <errno.h>
#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/service_thread.h"
#include "comm/bundle_signal.h"
#include "comm/folders.h"
#include "observe/bundle.h"

namespace tutti::comm {
namespace {

// What is added to the eventfd; a signal adds 1, and four billion of them do not come between two
// reads.
constexpr uint64_t kSignals = 0xffff'ffff;
constexpr uint64_t kVerdict = uint64_t{1} << 32;
constexpr uint64_t kEnd = uint64_t{1} << 48;

}  // namespace

Result<std::unique_ptr<BundleService>> BundleService::start(Options options) {
  if (!options.folder.empty()) warnUnlessWritable("TUTTI_BUNDLE_DIR", "bundle", options.folder);
  std::unique_ptr<BundleService> service(new BundleService(std::move(options)));
  service->wakeUp_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!service->wakeUp_) return systemError("eventfd", "for bundles", errno);
  TUTTI_TRY_ASSIGN(service->thread_,
                   startThread("tutti-bundle", [own = service.get()] { own->serve(); }));
  const std::string owner = takeSignal(service->options_.signal, service->wakeUp_.get());
  if (!owner.empty()) {
    log::warn("{} {}, since {}; tutti why --bundle makes one from outside",
              nameOfSignal(service->options_.signal),
              service->options_.folder.empty() ? "tells nothing of the ranks" : "makes no bundle",
              owner);
  }
  return service;
}

BundleService::~BundleService() {
  if (!thread_.joinable()) return;
  finish(Nanoseconds(0));
  thread_.join();
}

void BundleService::finish(Nanoseconds bound) {
  giveSignalBack(options_.signal);
  wake(kEnd);
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, bound, [this] { return hasEnded_; });
}

void BundleService::wake(uint64_t what) {
  [[maybe_unused]] const ssize_t ignored = ::write(wakeUp_.get(), &what, sizeof what);
}

std::vector<observe::LinkState> BundleService::links() const {
  return options_.links ? options_.links() : std::vector<observe::LinkState>();
}

void BundleService::verdictGiven(const observe::Board& board) {
  Failed failed{.name = board.name(), .evidence = observe::lookAtBoard(board), .links = links()};
  {
    const std::lock_guard lock(mutex_);
    failed_.push_back(std::move(failed));
  }
  wake(kVerdict);
}

void BundleService::serve() {
  letSignalIn(options_.signal);
  uint64_t what = 0;
  while (what < kEnd) {
    if (::read(wakeUp_.get(), &what, sizeof what) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    writeFailed();
    if ((what & kSignals) != 0) answerSignal();
  }
  const std::lock_guard lock(mutex_);
  hasEnded_ = true;
  ended_.notify_all();
}

void BundleService::writeFailed() {
  std::vector<Failed> failed;
  {
    const std::lock_guard lock(mutex_);
    failed.swap(failed_);
  }
  for (Failed& each : failed) {
    observe::askSystem(each.evidence);
    std::string cause = fmt::format("communicator {} has failed", each.name);
    std::vector<observe::Examination> found;
    found.push_back(observe::conclude(std::move(each.name), std::move(each.evidence)));
    write(std::move(cause), std::move(found), std::move(each.links));
  }
}

void BundleService::tell(const std::string& cause, const std::vector<observe::Examination>& found,
                         const std::vector<observe::LinkState>& links) {
  log::warn("{}: what its ranks do and wait for", cause);
  std::string text = observe::rankTable(found) + observe::linkTable(links, found);
  if (found.empty()) text = "no communicator is there (yet, or any more)\n";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    log::warn("{}", std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

void BundleService::answerSignal() {
  const int32_t self = ::getpid();
  const std::vector<observe::Board> boards = observe::boardsOf({&self, 1});
  std::vector<observe::Evidence> looks;
  for (const observe::Board& board : boards) looks.push_back(observe::look(board));
  std::vector<observe::LinkState> links = this->links();
  std::string cause = fmt::format("{} came to process {}", nameOfSignal(options_.signal), self);
  std::vector<observe::Examination> found = observe::examine(boards, std::move(looks));
  if (options_.folder.empty()) return tell(cause, found, links);
  write(std::move(cause), std::move(found), std::move(links));
}

void BundleService::write(std::string cause, std::vector<observe::Examination> found,
                          std::vector<observe::LinkState> links) {
  const int32_t self = ::getpid();
  const std::string stem = observe::bundleStem(found.empty() ? "" : found.front().name, self);
  std::vector<int32_t> processes = observe::processesToBlame(found, self);
  const observe::BundleInput input{.cause = std::move(cause),
                                   .found = std::move(found),
                                   .links = std::move(links),
                                   .processes = std::move(processes),
                                   .settings = options_.settings,
                                   .time = wallClockSeconds()};
  const Result<std::string> path =
      observe::writeBundle(options_.folder, stem, observe::makeBundle(input));
  if (path.ok()) {
    log::warn("{}: what its ranks did and waited for is in {}", input.cause, path.value());
  } else {
    log::warn("{}, but the bundle for TUTTI_BUNDLE_DIR is lost: {}", input.cause,
              path.status().message());
  }
}

}  // namespace tutti::comm
