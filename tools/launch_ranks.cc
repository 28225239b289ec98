#include "tools/launch_ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/whole_file.h"
#include "tools/command.h"
#include "tools/gpu_queues.h"
#include "tools/kept_boards.h"
#include "tools/launch_children.h"
#include "tools/launch_lines.h"
#include "tools/launcher_env.h"
#include "tools/own_library.h"
#include "tools/remote_rank.h"

namespace tutti::tools {
namespace {

constexpr int kGraceSeconds = 5;  // between asking and killing
constexpr std::chrono::seconds kBoardInterval{1};

// A port that was free a moment ago; the ranks' rendezvous takes it over.
Result<int> findFreePort() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, length) != 0 ||
      ::getsockname(socket.get(), generic, &length) != 0) {
    return systemError("bind", "a free port of 127.0.0.1", errno);
  }
  return int{ntohs(address.sin_port)};
}

void prepend(const Lookup& lookup, const char* variable, const std::string& value) {
  const char* old = lookup(variable);
  const bool hasOld = old != nullptr && *old != '\0';
  ::setenv(variable, (hasOld ? value + ":" + old : value).c_str(), 1);
}

// Set once in this process, which starts nothing but ranks.
Status prepareEnvironment(const LaunchOptions& options, int rankCount) {
  TUTTI_TRY_ASSIGN(const int port, findFreePort());
  const std::string count = std::to_string(rankCount);
  ::setenv("WORLD_SIZE", count.c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", count.c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  giveQueues(rankCount);
  const std::optional<std::string> folder = ownLibraryFolder();
  if (!folder) {
    if (!options.preloads) return {};  // the ranks take the system's, if they need one
    return makeError(Code::kSystemError,
                     fmt::format("--preload: no {} in ../lib beside this command", kLibraryName));
  }
  const Lookup lookup = processEnvironment();
  prepend(lookup, "LD_LIBRARY_PATH", *folder);
  if (!options.preloads) return {};
  prepend(lookup, "LD_PRELOAD", fmt::format("{}/{}", *folder, kLibraryName));
  // What is made for NCCL mostly computes while it communicates.
  constexpr int kKeep = 0;
  ::setenv("NCCL_CTA_POLICY", "1", kKeep);
  return {};
}

// What ranks of other hosts are to have of this process's variables.
std::vector<std::pair<std::string, std::string>> forwardedVariables(const LaunchOptions& options) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("NCCL_") && !text.starts_with("TUTTI_")) continue;
    const size_t equals = std::min(text.find('='), text.size() - 1);
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const std::string& each : options.forwards) {
    const size_t equals = each.find('=');
    const std::string name = each.substr(0, equals);
    const char* own = processEnvironment()(name.c_str());
    if (equals != std::string::npos) {
      variables.emplace_back(name, each.substr(equals + 1));
    } else if (own != nullptr) {
      variables.emplace_back(name, own);
    }
  }
  return variables;
}

// How a rank on another host is started.
RemoteRank remoteRank(const LaunchOptions& options, const std::vector<RankPlace>& places,
                      int rank) {
  const RankPlace& place = places[static_cast<size_t>(rank)];
  const std::string& master = places.front().host;
  RemoteRank remote{.ssh = options.ssh,
                    .host = place.host,
                    .folder = std::filesystem::current_path().string(),
                    .variables = forwardedVariables(options),
                    .libraryFolder = ownLibraryFolder().value_or(""),
                    .preloads = options.preloads,
                    .command = options.command};
  const auto set = [&remote](const char* name, std::string value) {
    remote.variables.emplace_back(name, std::move(value));
  };
  set("RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(places.size()));
  set("LOCAL_RANK", std::to_string(place.localRank));
  set("LOCAL_WORLD_SIZE", std::to_string(place.localCount));
  set("MASTER_ADDR", master.substr(master.find('@') + 1));
  set("MASTER_PORT", std::to_string(options.port));
  return remote;
}

// Of the child; -1: as this process's.
struct Streams {
  int input = -1;
  int output = -1;
  int error = -1;
};

// In the child.
int execute(const std::vector<std::string>& command, const Streams& streams) {
  ::signal(SIGPIPE, SIG_DFL);  // an ignored signal stays ignored across exec
  if (streams.input >= 0) ::dup2(streams.input, STDIN_FILENO);
  if (streams.output >= 0) ::dup2(streams.output, STDOUT_FILENO);
  if (streams.error >= 0) ::dup2(streams.error, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // execvp leaves them alone
  }
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  constexpr int kCannotStart = 127;  // as shells have it
  fmt::print(stderr, "tutti run: cannot start {}: {}\n", command.front(), std::strerror(errno));
  return kCannotStart;
}

// In the child: becomes the program.
int becomeProgram(const LaunchOptions& options, int rank, Streams streams) {
  const std::string number = std::to_string(rank);
  ::setenv("RANK", number.c_str(), 1);
  ::setenv("LOCAL_RANK", number.c_str(), 1);
  UniqueFd null;
  if (rank != 0 || ::isatty(STDIN_FILENO) == 1)
    null.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  streams.input = null.get();
  return execute(options.command, streams);
}

// One rank's output or error stream on its way to ours.
struct Pipe {
  UniqueFd fd;
  int target;
  LinePrefixer lines;
};

class Launch {
 public:
  // `places` is empty for ranks of this host.
  Launch(const LaunchOptions& options, int rankCount, std::vector<RankPlace> places)
      : options_(options),
        rankCount_(rankCount),
        places_(std::move(places)),
        secret_(places_.empty() ? "" : randomHex(systemRng(), 32)),
        children_(true) {}

  Status start();
  int wait();

 private:
  Status startRank(int rank);
  Status spawn(int rank, const Streams& streams);
  std::string prefixOf(int rank, int target) const;
  void readFrom(Pipe& pipe);
  void pass(Pipe& pipe, std::string_view lines);
  void drain();
  void reapAll();
  void note(const ChildExit& exit);
  void takeSignal();
  void end(int signal);
  int pollMilliseconds() const;
  void checkTimes();
  void lookAtBoards();
  void tellWhy() const;

  const LaunchOptions& options_;
  const int rankCount_;
  const std::vector<RankPlace> places_;
  const std::string secret_;
  UniqueFd signals_;
  Children children_;
  std::vector<Pipe> pipes_;
  std::vector<UniqueFd> inputs_;     // of ranks of other hosts: open as long as they shall run
  KeptBoards boards_;                // of ranks of this host
  std::optional<Instant> boardsAt_;  // the next look at them
  std::optional<Instant> timeoutAt_;
  std::optional<Instant> killAt_;
  std::optional<int> exitCode_;  // of the first failure
  bool isOutputLost_ = false;
  bool isEnding_ = false;
};

Status Launch::start() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&watched, signal);
  blockSignals();
  ::signal(SIGPIPE, SIG_IGN);  // a closed output must not keep us from ending the ranks
  signals_.reset(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return systemError("signalfd", "signals", errno);
  if (options_.timeoutSeconds > 0) {
    timeoutAt_ = steadyClock().now() + std::chrono::seconds(options_.timeoutSeconds);
  }
  for (int rank = 0; rank < rankCount_; ++rank) TUTTI_TRY(startRank(rank));
  return {};
}

std::string Launch::prefixOf(int rank, int target) const {
  constexpr int kColors = 6;  // of the terminal's eight, without black and white
  const int width = static_cast<int>(std::to_string(rankCount_ - 1).size());
  const std::string plain = fmt::format("[{:>{}}] ", rank, width);
  if (::isatty(target) != 1 || processEnvironment()("NO_COLOR") != nullptr) return plain;
  return fmt::format("\x1b[3{}m{}\x1b[0m", 1 + rank % kColors, plain);
}

Status Launch::startRank(int rank) {
  if (!options_.prefixesLines) return spawn(rank, {});
  std::array<UniqueFd, 2> writeEnds;
  for (const int target : {STDOUT_FILENO, STDERR_FILENO}) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return systemError("pipe", "a rank's output", errno);
    writeEnds[static_cast<size_t>(target - STDOUT_FILENO)].reset(ends[1]);
    UniqueFd readEnd(ends[0]);
    if (::fcntl(readEnd.get(), F_SETFL, O_NONBLOCK) != 0) {
      return systemError("fcntl", "a rank's output", errno);
    }
    pipes_.push_back({std::move(readEnd), target, LinePrefixer(prefixOf(rank, target))});
  }
  return spawn(rank, {.output = writeEnds[0].get(), .error = writeEnds[1].get()});
}

Status Launch::spawn(int rank, const Streams& streams) {
  if (places_.empty())
    return children_.spawn(rank, [&] { return becomeProgram(options_, rank, streams); });
  const RemoteRank remote = remoteRank(options_, places_, rank);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return systemError("pipe", "a rank's input", errno);
  const UniqueFd readEnd(ends[0]);
  writeAll(inputs_.emplace_back(ends[1]).get(), secret_ + "\n");
  return children_.spawn(rank, [&] {
    return execute(sshCommand(remote),
                   {.input = readEnd.get(), .output = streams.output, .error = streams.error});
  });
}

// Reads what is there, more than a pipe holds but not more: one that never stops writing must not
// keep the others, or signals, waiting. Closes at the end.
void Launch::readFrom(Pipe& pipe) {
  constexpr int kMostReads = 128;
  std::array<char, 16384> buffer;
  for (int reads = 0; pipe.fd && reads < kMostReads; ++reads) {
    const ssize_t length = ::read(pipe.fd.get(), buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
      pass(pipe, pipe.lines.finish());
      pipe.fd.reset();
      return;
    }
    pass(pipe, pipe.lines.feed({buffer.data(), static_cast<size_t>(length)}));
  }
}

// A rank whose reader has gone finds that out as if it wrote there itself. For a disk that is full
// no rank is ended: what they print is lost, and the exit code says so.
void Launch::pass(Pipe& pipe, std::string_view lines) {
  const int error = writeAll(pipe.target, lines);
  if (error == 0) return;
  if (error == EPIPE) pipe.fd.reset();
  if (!isOutputLost_ && error != EPIPE)
    fmt::print(stderr, "tutti run: cannot write what the ranks print: {}\n", std::strerror(error));
  isOutputLost_ = true;
}

// After the last rank: what it wrote is in the pipes. Something that left its group may hold them
// open; nobody waits for that.
void Launch::drain() {
  for (Pipe& pipe : pipes_) {
    readFrom(pipe);
    pass(pipe, pipe.lines.finish());
  }
}

// Ranks of other hosts are told by the end of their input, and told again there after the grace.
void Launch::end(int signal) {
  inputs_.clear();
  if (places_.empty() || signal == SIGKILL) children_.signalAll(signal);
  const int grace = places_.empty() ? kGraceSeconds : 2 * kGraceSeconds;
  if (!isEnding_) killAt_ = steadyClock().now() + std::chrono::seconds(grace);
  isEnding_ = true;
}

void Launch::note(const ChildExit& exit) {
  if (exit.isClean() || isEnding_) return;
  exitCode_ = exit.shellCode();
  if (exit.signal == SIGPIPE && hasLostReader()) return end(SIGTERM);
  const bool isLast = children_.runningCount() == 0;
  const std::string who = places_.empty()
                              ? fmt::format("pid {}", exit.pid)
                              : fmt::format("on {}", places_[static_cast<size_t>(exit.index)].host);
  fmt::print(stderr, "tutti run: rank {} ({}) {}{}\n", exit.index, who, describe(exit),
             isLast ? "" : "; ending the others");
  if (exit.signal != 0) tellWhy();
  end(SIGTERM);
}

// A rank that has died says nothing; nor do the others, where all have.
void Launch::tellWhy() const {
  for (const std::string& line : boards_.verdicts()) fmt::print(stderr, "tutti run: {}\n", line);
}

void Launch::lookAtBoards() {
  if (!places_.empty() || isEnding_) return boardsAt_.reset();
  const Instant now = steadyClock().now();
  if (boardsAt_ && now < *boardsAt_) return;
  boards_.look(children_.groups());
  boardsAt_ = now + kBoardInterval;
}

void Launch::reapAll() {
  while (std::optional<ChildExit> exit = children_.reap()) note(*exit);
}

void Launch::takeSignal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    const bool isRepeated = isEnding_ && exitCode_ == 128 + signal;
    if (!exitCode_) exitCode_ = 128 + signal;
    end(isRepeated ? SIGKILL : signal);
  }
}

int Launch::pollMilliseconds() const {
  std::optional<Instant> next = killAt_ ? killAt_ : timeoutAt_;
  if (boardsAt_ && (!next || *boardsAt_ < *next)) next = boardsAt_;
  if (!next) return -1;
  const Nanoseconds left = *next - steadyClock().now();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
  return static_cast<int>(std::clamp<int64_t>(milliseconds, 0, INT_MAX));
}

void Launch::checkTimes() {
  const Instant now = steadyClock().now();
  if (killAt_ && now >= *killAt_) {
    children_.signalAll(SIGKILL);
    killAt_ = now + std::chrono::seconds(kGraceSeconds);
  } else if (timeoutAt_ && now >= *timeoutAt_ && !isEnding_) {
    fmt::print(stderr, "tutti run: {} ranks still run after {} s (--timeout); ending them\n",
               children_.runningCount(), options_.timeoutSeconds);
    exitCode_ = kExitTimeout;
    end(SIGTERM);
  }
}

int Launch::wait() {
  while (children_.runningCount() != 0) {
    lookAtBoards();
    std::vector<pollfd> watched = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    for (const Pipe& pipe : pipes_) {
      // A closed one has fd -1, which poll passes over.
      watched.push_back({.fd = pipe.fd.get(), .events = POLLIN, .revents = 0});
    }
    ::poll(watched.data(), watched.size(), pollMilliseconds());
    for (size_t i = 0; i < pipes_.size(); ++i) {
      if (watched[i + 1].revents != 0) readFrom(pipes_[i]);
    }
    takeSignal();
    reapAll();
    checkTimes();
  }
  drain();
  return exitCode_.value_or(isOutputLost_ ? kExitEnvironment : kExitOk);
}

}  // namespace

int launchRanks(const LaunchOptions& options) {
  constexpr int kUsualRanks = 2;
  std::vector<RankPlace> places;
  int rankCount = options.rankCount > 0 ? options.rankCount : kUsualRanks;
  Status status;
  if (options.hosts.empty()) {
    status = prepareEnvironment(options, rankCount);
  } else if (auto placed = placeRanks(options.hosts, options.rankCount); placed.ok()) {
    places = std::move(placed).value();
    rankCount = static_cast<int>(places.size());
  } else {
    fmt::print(stderr, "tutti run: {}\n", placed.status().message());
    return kExitUsage;
  }
  Launch launch(options, rankCount, std::move(places));
  if (status.ok()) status = launch.start();
  if (!status.ok()) {
    fmt::print(stderr, "tutti run: {}\n", status.message());
    return kExitEnvironment;
  }
  return launch.wait();
}

}  // namespace tutti::tools
