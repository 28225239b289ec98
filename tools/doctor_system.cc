// tutti doctor: limits, and whether processes can share memory the ways this library does.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "base/fd.h"
#include "base/rng.h"
#include "base/settings.h"
#include "tools/doctor_report.h"

namespace tutti::tools {
namespace {

// Descriptors of a job on one host: two a peer and a few of our own, and what the program has open.
constexpr rlim_t kWantedDescriptors = 1024;

std::string errorText(int errnoValue) {
  char text[128] = "";
  return ::strerror_r(errnoValue, text, sizeof text);
}

std::string limitText(rlim_t limit, bool isBytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return isBytes ? sizeText(static_cast<int64_t>(limit)) : fmt::format("{}", limit);
}

rlimit addLimit(Section& section, const std::string& key, int resource, bool isBytes) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return limit;
  section.add(key, limitText(limit.rlim_cur, isBytes),
              fmt::format("at most {}", limitText(limit.rlim_max, isBytes)));
  return limit;
}

// What a step gave: success, or the errno that stopped it.
struct Outcome {
  std::string step;  // "": all went well
  int errnoValue = 0;

  bool isGood() const { return step.empty(); }
  std::string text() const { return isGood() ? "works" : step + ": " + errorText(errnoValue); }
};

Outcome tryMemfd() {
  const UniqueFd fd(::memfd_create("tutti-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return {"memfd_create", errno};
  constexpr size_t kBytes = 4096;
  if (::ftruncate(fd.get(), kBytes) != 0) return {"ftruncate", errno};
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return {"seal", errno};
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return {"mmap", errno};
  std::memset(memory, 1, kBytes);
  ::munmap(memory, kBytes);
  return {};
}

// A name nobody else has, so that two doctors do not meet.
sockaddr_un abstractAddress(socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "tutti-doctor-" + randomHex(systemRng(), 8);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Outcome tryAbstractSocket() {
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return {"socket", errno};
  socklen_t length = 0;
  const sockaddr_un address = abstractAddress(length);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(listener.get(), generic, length) != 0) return {"bind", errno};
  if (::listen(listener.get(), 1) != 0) return {"listen", errno};
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(client.get(), generic, length) != 0) return {"connect", errno};
  const UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!server) return {"accept", errno};
  return {};
}

// Ends and collects a child process.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  }

 private:
  pid_t pid_;
};

// Whether one rank may read the memory of another, as sibling processes of one launcher are.
Outcome tryReadOfSibling() {
  int64_t word = 57;  // at the same address in both children
  Child idle(::fork());
  if (idle.pid() == 0) {
    ::pause();
    ::_exit(0);
  }
  if (idle.pid() < 0) return {"fork", errno};
  Child reader(::fork());
  if (reader.pid() == 0) {
    int64_t seen = 0;
    iovec local{&seen, sizeof seen};
    iovec remote{&word, sizeof word};
    const ssize_t got = ::process_vm_readv(idle.pid(), &local, 1, &remote, 1, 0);
    ::_exit(got == sizeof seen && seen == word ? 0 : got < 0 ? errno : EIO);
  }
  if (reader.pid() < 0) return {"fork", errno};
  const int problem = reader.wait();
  if (problem != 0) return {"process_vm_readv", problem};
  return {};
}

Outcome tryFutexWaitv() {
  constexpr long kFutexWaitv = 449;  // one number on all architectures; older headers lack it
  // No waiters at all is invalid: the kernel that knows the call says so.
  if (::syscall(kFutexWaitv, nullptr, 0, 0, nullptr, 0) == 0 || errno == EINVAL) return {};
  return {"futex_waitv", errno};
}

void addDevShm(Section& section) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) {
    section.add("dev_shm", "none", "not needed: memory is shared by memfd");
    return;
  }
  section.add("dev_shm_bytes", static_cast<int64_t>(info.f_blocks * info.f_frsize),
              "not needed: memory is shared by memfd");
}

}  // namespace

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> linesOf(const std::string& command) {
  struct PipeCloser {
    void operator()(std::FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<std::FILE, PipeCloser> pipe(::popen(command.c_str(), "re"));
  std::vector<std::string> lines;
  std::array<char, 8192> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    lines.emplace_back(line.data());
    while (lines.back().ends_with('\n')) lines.back().pop_back();
  }
  return lines;
}

std::string sizeText(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

void examineLimits(DoctorReport& report) {
  Section& section = report.open("limits");
  const rlimit files = addLimit(section, "open_files", RLIMIT_NOFILE, false);
  if (files.rlim_cur < kWantedDescriptors) {
    report.find(fmt::format("a process may open only {} files; a job needs two a rank it talks to",
                            files.rlim_cur),
                files.rlim_max >= kWantedDescriptors
                    ? fmt::format("ulimit -n {}", kWantedDescriptors)
                    : "raise nofile in /etc/security/limits.conf or the container's ulimits");
  }
  addLimit(section, "processes_and_threads", RLIMIT_NPROC, false);
  addLimit(section, "locked_memory", RLIMIT_MEMLOCK, true);
}

void examineSharing(DoctorReport& report, const Settings& settings) {
  Section& section = report.open("shared memory");
  const Outcome memfd = tryMemfd();
  section.add("memfd", memfd.text(), "memory of links between processes");
  if (!memfd.isGood()) {
    report.find("processes cannot share memory: " + memfd.text(),
                "allow memfd_create, sealing and mmap in the sandbox's seccomp profile");
  }
  const Outcome socket = tryAbstractSocket();
  section.add("abstract_unix_sockets", socket.text(), "hand that memory from process to process");
  if (!socket.isGood()) {
    report.find("processes cannot hand memory to each other: " + socket.text(),
                "allow abstract Unix sockets in the sandbox (AppArmor, Landlock, seccomp)");
  }
  if (settings.integer("NCCL_SHM_DISABLE") == 1) {
    section.add("in_use", false, "NCCL_SHM_DISABLE=1");
    report.find("ranks in different processes have no way to each other: NCCL_SHM_DISABLE=1",
                "unset NCCL_SHM_DISABLE");
  }
  addDevShm(section);
  const std::string scope = firstLine("/proc/sys/kernel/yama/ptrace_scope");
  section.add("process_vm_readv", tryReadOfSibling().text(),
              scope.empty()
                  ? "between sibling processes; not needed"
                  : fmt::format("between sibling processes, ptrace_scope {}; not needed", scope));
  const Outcome waitv = tryFutexWaitv();
  section.add("futex_waitv", waitv.text(),
              waitv.isGood() ? "a rank sleeps on all its links at once"
                             : "a waiting rank yields instead of sleeping (Linux 5.16 has it)");
}

}  // namespace tutti::tools
