#include "tools/own_library.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/settings.h"

namespace tutti::tools {
namespace {

constexpr const char* kOwnLink = "/proc/self/exe";

// What the command was started by: relative to the folder it was started in.
const char* startedBy() { return reinterpret_cast<const char*>(::getauxval(AT_EXECFN)); }

std::optional<std::string> resolve(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) == nullptr) return std::nullopt;
  return std::string(resolved.data());
}

std::optional<std::string> ownPath() {
  const std::optional<std::string> path = resolve(kOwnLink);
  return path || startedBy() == nullptr ? path : resolve(startedBy());
}

}  // namespace

std::optional<std::string> ownLibraryFolder() {
  const std::optional<std::string> path = ownPath();
  if (!path) return std::nullopt;
  const std::string folder = path->substr(0, path->rfind('/'));
  for (const char* candidate : {"/../lib", "/../lib64", "/../lib/x86_64-linux-gnu", ""}) {
    const std::optional<std::string> resolved = resolve(folder + candidate);
    if (!resolved) continue;
    const std::string library = fmt::format("{}/{}", *resolved, kLibraryName);
    if (::access(library.c_str(), R_OK) == 0) return resolved;
  }
  return std::nullopt;
}

bool isTuttis(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_size <= 0) return false;
  const auto bytes = static_cast<size_t>(info.st_size);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) return false;
  constexpr std::string_view kMark = "ncclTuttiStreamCreate";
  const bool isFound = ::memmem(memory, bytes, kMark.data(), kMark.size()) != nullptr;
  ::munmap(memory, bytes);
  return isFound;
}

void insistOnOwnLibrary(char** arguments) {
  if (::access(kOwnLink, F_OK) == 0) return;
  const std::optional<std::string> folder = ownLibraryFolder();
  if (!folder) return;
  const std::string others = environmentVariable("LD_LIBRARY_PATH").value_or("");
  if (others.find(*folder) != std::string::npos) return;
  const std::string all = others.empty() ? *folder : others + ":" + *folder;
  ::setenv("LD_LIBRARY_PATH", all.c_str(), 1);
  ::execv(startedBy(), arguments);
}

}  // namespace tutti::tools
