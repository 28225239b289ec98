#include "observe/bundle.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "base/proc_files.h"
#include "base/read_file.h"
#include "base/version.h"
#include "base/whole_file.h"
#include "observe/bundle_page.h"
#include "observe/process_report.h"
#include "observe/tar.h"
#include "observe/time_line.h"

namespace tutti::observe {
namespace {

constexpr size_t kAllLines = SIZE_MAX;
constexpr size_t kMaxNameBytes = 64;  // of the job in a file's name
constexpr int kMaxBundles = 10'000;   // of one name

// Of each process, and of the host.
constexpr std::array<std::string_view, 6> kProcessFiles = {"status", "limits",  "cgroup",
                                                           "io",     "net/dev", "net/snmp"};
constexpr std::array<std::string_view, 6> kHostFiles = {
    "loadavg", "meminfo", "uptime", "pressure/cpu", "pressure/memory", "pressure/io"};

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string verdictText(const BundleInput& input) {
  std::string text = input.cause + "\n\n";
  for (const Examination& each : input.found) {
    text += fmt::format("communicator {}: ", each.name);
    if (!each.finding.isWrong) text += "nothing wrong\n";
    if (!each.finding.isWrong) continue;
    for (const std::string& line : findingLines(each.finding, kAllLines)) text += line + '\n';
  }
  if (input.found.empty()) text += "no communicator is there (yet, or any more)\n";
  return text;
}

std::string_view stateText(ProcessState state) {
  switch (state) {
    case ProcessState::kUnknown: return "state unknown";
    case ProcessState::kAlive: return "alive";
    case ProcessState::kStopped: return "stopped";
    case ProcessState::kDead: return "dead";
  }
  return "?";
}

std::string rankText(const Evidence& evidence, const RankView& rank) {
  const auto place = static_cast<size_t>(rank.rank);
  const ProcessState state =
      place < evidence.states.size() ? evidence.states[place] : ProcessState::kUnknown;
  const uint64_t begun = rank.newest() == nullptr ? 0 : rank.newest()->number;
  std::string text =
      fmt::format("  {}: {}, {}; {} operation{} begun; {}\n", who(rank), stateText(state),
                  name(rank.life), begun, begun == 1 ? "" : "s", lastCall(rank));
  if (place < evidence.activities.size() && !evidence.activities[place].empty())
    text += fmt::format("    {}\n", evidence.activities[place]);
  for (const WaitNote& wait : rank.waits) {
    text += fmt::format("    {}, step {}, piece {}, for {:.1f} s\n", waitText(rank, wait),
                        wait.step, wait.piece, seconds(evidence.now - wait.since));
  }
  return text;
}

std::string versionText() {
  utsname system{};
  ::uname(&system);
  Dl_info self{};
  ::dladdr(reinterpret_cast<const void*>(&kBanner), &self);
  return fmt::format("{}\nfrom {}\nglibc {}\n{} {} {} {}\n", kBanner,
                     self.dli_fname == nullptr ? "?" : self.dli_fname, ::gnu_get_libc_version(),
                     system.sysname, system.release, system.version, system.machine);
}

using Files = std::vector<std::pair<std::string, std::string>>;  // names and contents

void addProcess(Files& files, int32_t process) {
  const std::string folder = fmt::format("process-{}/", process);
  for (const std::string_view file : kProcessFiles) {
    std::string content = readFile(fmt::format("/proc/{}/{}", process, file));
    if (!content.empty()) files.emplace_back(fmt::format("{}{}", folder, file), std::move(content));
  }
  files.emplace_back(folder + "sockets.txt", socketReport(process));
  files.emplace_back(folder + "settings.txt",
                     "set when the process began:\n" + startSettings(process));
}

std::string hostText() {
  std::string text;
  for (const std::string_view file : kHostFiles)
    text += fmt::format("# /proc/{0}\n{1}\n", file, readFile(fmt::format("/proc/{}", file)));
  return text;
}

std::string hostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// What may be in a file's name on every system.
std::string plain(std::string_view text) {
  std::string safe(text.substr(0, kMaxNameBytes));
  for (char& c : safe) {
    const bool isPlain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
    if (!isPlain) c = '_';
  }
  return safe;
}

// 0, or errno's value; EEXIST when somebody has the name.
int nameUnlessTaken(TemporaryFile& file, const std::string& path) {
  const int error = file.giveName(path, RENAME_NOREPLACE);
  if (error != EINVAL && error != ENOSYS) return error;
  // The file system cannot promise that; between two of us the process's id in the name does.
  return ::access(path.c_str(), F_OK) == 0 ? EEXIST : file.giveName(path, 0);
}

}  // namespace

std::string makeBundle(const BundleInput& input) {
  Files files = {{"why.txt", verdictText(input)}, {"ranks.txt", rankTable(input.found)}};
  if (!input.links.empty()) files.emplace_back("links.txt", linkTable(input.links, input.found));
  files.emplace_back("ranks.json", toJson(input.found));
  files.emplace_back("trace.json", traceOf(input.found));
  std::string threads;
  for (const int32_t process : input.processes) threads += threadReport(process) + '\n';
  files.emplace_back("threads.txt", std::move(threads));
  if (!input.settings.empty()) files.emplace_back("settings.txt", input.settings);
  files.emplace_back("version.txt", versionText());
  files.emplace_back("host.txt", hostText());
  for (const int32_t process : input.processes) addProcess(files, process);

  Tar tar(input.time);
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  tar.add("index.html", pageOf(input.cause, input.found, names));
  for (const auto& [name, content] : files) tar.add(name, content);
  return tar.finish();
}

std::string rankTable(std::span<const Examination> found) {
  std::string text;
  for (const Examination& each : found) {
    text += fmt::format("communicator {}, {} ranks\n", each.name, each.evidence.ranks.size());
    size_t elsewhere = 0;
    for (const RankView& rank : each.evidence.ranks) {
      if (!hasPage(rank))
        ++elsewhere;
      else
        text += rankText(each.evidence, rank);
    }
    if (elsewhere > 0) text += fmt::format("  and {} of other hosts, or not yet here\n", elsewhere);
  }
  return text;
}

std::vector<int32_t> processesToBlame(std::span<const Examination> found, int32_t own) {
  std::set<int32_t> processes;
  for (const Examination& each : found) {
    const auto guilty = static_cast<size_t>(each.finding.guilty);
    if (each.finding.guilty >= 0 && guilty < each.evidence.ranks.size() &&
        each.evidence.states[guilty] != ProcessState::kUnknown)
      processes.insert(each.evidence.ranks[guilty].process.processId);
  }
  processes.erase(own);
  std::vector<int32_t> list = {own};
  list.insert(list.end(), processes.begin(), processes.end());
  return list;
}

std::vector<int32_t> processesOf(std::span<const Examination> found) {
  std::set<int32_t> processes;
  for (const Examination& each : found) {
    for (size_t i = 0; i < each.evidence.ranks.size(); ++i) {
      if (each.evidence.states[i] != ProcessState::kUnknown)
        processes.insert(each.evidence.ranks[i].process.processId);
    }
  }
  return {processes.begin(), processes.end()};
}

std::string bundleStem(std::string_view job, int32_t processId) {
  return fmt::format("tutti-{}-{}-{}", plain(job.empty() ? "none" : job), plain(hostName()),
                     processId);
}

Result<std::string> writeBundle(const std::string& folder, const std::string& stem,
                                std::string_view archive) {
  TemporaryFile file(folder);
  std::string path = fmt::format("{}/{}.tar", folder, stem);
  if (const int error = file.write(archive); error != 0) return cannotWrite(path, error);
  for (int number = 2; number <= kMaxBundles; ++number) {
    const int error = nameUnlessTaken(file, path);
    if (error == 0) return path;
    if (error != EEXIST) return cannotWrite(path, error);
    path = fmt::format("{}/{}-{}.tar", folder, stem, number);
  }
  return cannotWrite(path, EEXIST);
}

}  // namespace tutti::observe
