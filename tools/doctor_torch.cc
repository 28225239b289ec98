// tutti doctor: whether PyTorch uses this library, in a running process or as it is installed.
//
// PyTorch's wheels carry a library path (RPATH) that leads to NVIDIA's libnccl.so.2 and goes before
// LD_LIBRARY_PATH. What the loader would do is not worked out but asked, by ldd.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "base/settings.h"
#include "tools/doctor_report.h"
#include "tools/own_library.h"
#include "tools/remote_rank.h"

namespace tutti::tools {
namespace {

std::string_view fileName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Also what an installation named by its version; not plug-ins, which are libnccl-net.so.
bool isNccl(std::string_view path) { return fileName(path).starts_with("libnccl.so"); }

std::string ownership(const std::string& path) {
  return isTuttis(path) ? "it is tutti's" : "it is not tutti's";
}

// What the loader gives a program that needs `library`, in an environment with `variables` before
// the command; "" when nothing. ldd prints "libnccl.so.2 => PATH (0x...)", what is preloaded by its
// path alone.
std::string loadedFor(const std::string& library, const std::string& variables) {
  for (const std::string& line : linesOf(
           fmt::format("env -u LD_PRELOAD {} ldd {} 2>/dev/null", variables, quoted(library)))) {
    std::string_view text = line;
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (const size_t arrow = text.find(" => "); arrow != std::string_view::npos)
      text.remove_prefix(arrow + 4);
    text = text.substr(0, text.find(" (0x"));
    if (text.starts_with('/') && isNccl(text)) return std::string(text);
  }
  return "";
}

std::string quotedOwn() {
  const std::optional<std::string> folder = ownLibraryFolder();
  return folder ? quoted(fmt::format("{}/{}", *folder, kLibraryName)) : "";
}

std::string mendByStarting() {
  std::string mend = "start the program by `python -m tutti run`";
  if (const auto folder = ownLibraryFolder())
    mend += fmt::format(", or with LD_PRELOAD={}/{}", *folder, kLibraryName);
  return mend;
}

// The folder of the Python's package, which is not imported; nothing without one.
std::optional<std::string> torchFolder(const std::string& python) {
  constexpr const char* kAsk =
      "import importlib.util as u; s = u.find_spec('torch'); "
      "print(list(s.submodule_search_locations)[0] if s else '')";
  const auto lines = linesOf(fmt::format("{} -c {} 2>/dev/null", quoted(python), quoted(kAsk)));
  if (lines.empty() || lines.front().empty()) return std::nullopt;
  return lines.front();
}

std::string torchVersion(const std::string& folder) {
  std::ifstream file(folder + "/version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const size_t start = line.find_first_of("'\"");
    if (start == std::string::npos) continue;
    return line.substr(start + 1, line.find_first_of("'\"", start + 1) - start - 1);
  }
  return "of unknown version";
}

// What of interest a process has mapped.
struct Mapped {
  std::set<std::string> nccl;
  bool hasTorch = false;
  bool hasTorchCuda = false;
};

Mapped mappedBy(std::ifstream& maps) {
  Mapped mapped;
  for (std::string line; std::getline(maps, line);) {
    const size_t start = line.find('/');
    if (start == std::string::npos) continue;
    const std::string path = line.substr(start);
    const std::string_view name = fileName(path);
    if (isNccl(path)) mapped.nccl.insert(path);
    mapped.hasTorch = mapped.hasTorch || name.starts_with("libtorch_cpu.so");
    mapped.hasTorchCuda = mapped.hasTorchCuda || name.starts_with("libtorch_cuda.so");
  }
  return mapped;
}

// A file of the process, which may see others than we: a container's.
std::string seenBy(int64_t processId, const std::string& path) {
  const std::string seen = fmt::format("/proc/{}/root{}", processId, path);
  return ::access(seen.c_str(), R_OK) == 0 ? seen : path;
}

// Whether a call of torch's goes to tutti's: the one that was preloaded, or the only one.
bool isTuttiFirst(int64_t processId, const Mapped& mapped) {
  const auto isOurs = [&](const std::string& path) { return isTuttis(seenBy(processId, path)); };
  if (std::ranges::all_of(mapped.nccl, isOurs)) return true;
  std::ifstream environment(fmt::format("/proc/{}/environ", processId));
  for (std::string each; std::getline(environment, each, '\0');) {
    if (!each.starts_with("LD_PRELOAD=")) continue;
    const std::string list = each.substr(each.find('=') + 1);
    for (size_t start = 0; start < list.size();) {
      const size_t end = std::min(list.find_first_of(": ", start), list.size());
      const std::string path = list.substr(start, end - start);
      if (isNccl(path)) return isOurs(path);
      start = end + 1;
    }
  }
  return false;
}

}  // namespace

void examineTorch(DoctorReport& report, const std::string& python) {
  const std::optional<std::string> folder = torchFolder(python);
  Section& section = report.open("torch");
  if (!folder) {
    section.add("installed", "none", fmt::format("{} finds no torch", python));
    return;
  }
  section.add("installed", torchVersion(*folder), fmt::format("{}, of {}", *folder, python));
  const std::string library = *folder + "/lib/libtorch_cuda.so";
  if (::access(library.c_str(), R_OK) != 0) {
    section.add(
        "loads", "none",
        "it was built without CUDA and has no backend nccl; tutti.torch is one for CPU tensors");
    return;
  }
  const std::string plain = loadedFor(library, "");
  if (plain.empty()) {
    section.add("loads", "none", "NCCL is built into it, or its libnccl.so.2 is missing");
    return;
  }
  const std::string own = quotedOwn();
  std::string note = ownership(plain);
  if (!own.empty() && !isTuttis(plain)) {
    const std::string byPath = quoted(*ownLibraryFolder());
    if (!isTuttis(loadedFor(library, "LD_LIBRARY_PATH=" + byPath)))
      note += "; torch has a library path of its own (RPATH): LD_LIBRARY_PATH changes nothing";
  }
  section.add("loads", plain, note);
  if (own.empty()) return;
  const std::string preloaded = loadedFor(library, "LD_PRELOAD=" + own);
  section.add("loads_with_preload", preloaded.empty() ? "none" : preloaded, ownership(preloaded));
  if (!isTuttis(preloaded)) {
    report.find("torch does not load tutti's library even where it is preloaded",
                fmt::format("see what LD_PRELOAD={} ldd {} says", own, library));
  } else if (!isTuttis(plain)) {
    section.add("to_use_tuttis", "python -m tutti run", "or LD_PRELOAD, as above");
  }
}

bool examineProcess(DoctorReport& report, int64_t processId) {
  std::ifstream maps(fmt::format("/proc/{}/maps", processId));
  if (!maps || maps.peek() == std::ifstream::traits_type::eof()) {
    fmt::print(stderr, "tutti doctor: process {} cannot be looked into: {}\n", processId,
               maps ? "it has no memory mapped, or is another user's" : std::strerror(errno));
    return false;
  }
  const Mapped mapped = mappedBy(maps);
  Section& section = report.open("process");
  section.add("command", firstLine(fmt::format("/proc/{}/comm", processId)),
              fmt::format("process {}", processId));
  section.add("torch", mapped.hasTorch,
              mapped.hasTorch && !mapped.hasTorchCuda ? "built without CUDA" : "");
  for (const std::string& path : mapped.nccl)
    section.add("has_loaded", path, ownership(seenBy(processId, path)));
  if (mapped.nccl.empty()) {
    section.add("uses_tutti", false, "it has loaded no libnccl.so.2");
    if (!mapped.hasTorchCuda) return true;
    report.find(
        fmt::format("process {} has PyTorch with CUDA and no libnccl.so.2: NCCL is built in",
                    processId),
        "use a PyTorch that loads libnccl.so.2, as its wheels do");
    return true;
  }
  const bool isOurs = isTuttiFirst(processId, mapped);
  section.add("uses_tutti", isOurs, isOurs && mapped.nccl.size() > 1 ? "it was preloaded" : "");
  if (isOurs) return true;
  report.find(fmt::format("process {} uses another libnccl.so.2: {}", processId,
                          *std::ranges::find_if(mapped.nccl,
                                                [&](const std::string& path) {
                                                  return !isTuttis(seenBy(processId, path));
                                                })),
              mendByStarting());
  return true;
}

}  // namespace tutti::tools
