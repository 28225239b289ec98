#include "tools/perf_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

// Not every library that this command is run with has our additions.
#pragma weak ncclTuttiCommDump
#pragma weak ncclTuttiStreamCreate
#pragma weak ncclTuttiStreamDestroy
#pragma weak ncclTuttiStreamSynchronize

namespace tutti::tools {

Library Library::linked() {
  Library library;
#define TUTTI_PERF_LINK(member, symbol) library.member = &::symbol;
  TUTTI_PERF_LIBRARY(TUTTI_PERF_LINK)
  TUTTI_PERF_LIBRARY_EXTRA(TUTTI_PERF_LINK)
#undef TUTTI_PERF_LINK
  return library;
}

Result<Library> Library::open(const std::string& path) {
  // By its full path: a bare name would find the linked one. Deep binding: its calls of its own
  // functions must not go to ours, which have the same names.
  std::unique_ptr<char, decltype(&std::free)> full(::realpath(path.c_str(), nullptr), &std::free);
  if (full == nullptr) return systemError("open", path, errno);
  void* handle = ::dlopen(full.get(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return makeError(Code::kSystemError,
                     fmt::format("cannot load {}: {}", path, reason == nullptr ? "?" : reason));
  }
  Library library;
  library.path = path;
  const char* missing = nullptr;
  const auto find = [handle](auto& member, const char* symbol) {
    void* address = ::dlsym(handle, symbol);
    std::memcpy(&member, &address, sizeof member);
    return address != nullptr;
  };
#define TUTTI_PERF_FIND(member, symbol) \
  if (!find(library.member, #symbol)) missing = #symbol;
  TUTTI_PERF_LIBRARY(TUTTI_PERF_FIND)
#undef TUTTI_PERF_FIND
#define TUTTI_PERF_TRY(member, symbol) find(library.member, #symbol);
  TUTTI_PERF_LIBRARY_EXTRA(TUTTI_PERF_TRY)
#undef TUTTI_PERF_TRY
  if (missing != nullptr)
    return makeError(Code::kSystemError, fmt::format("{} has no {}", path, missing));
  return library;
}

Status Library::check(const char* call, ncclResult_t result, ncclComm_t comm) const {
  if (result == ncclSuccess) return {};
  const char* detail = getLastError(comm);
  const bool hasDetail = detail != nullptr && *detail != '\0';
  return Status(
      static_cast<Code>(result),
      fmt::format("{}{}{}: {}{}{}", path, path.empty() ? "" : ": ", call, getErrorString(result),
                  hasDetail ? ": " : "", hasDetail ? detail : ""));
}

Status Library::checkServes(const PerfOptions& options) const {
  const char* missing = nullptr;
  if (options.operation == Operation::kAllToAll && allToAll == nullptr) missing = "ncclAlltoAll";
  if (options.operation == Operation::kGather && gather == nullptr) missing = "ncclGather";
  if (options.operation == Operation::kScatter && scatter == nullptr) missing = "ncclScatter";
  if (options.registration == Registration::kWindow && commWindowRegister == nullptr)
    missing = "ncclCommWindowRegister";
  if (options.hostStream && streamCreate == nullptr) missing = "ncclTuttiStreamCreate (--stream)";
  if (missing == nullptr) return {};
  return invalidUsage("{} has no {}", path.empty() ? "the library" : path, missing);
}

}  // namespace tutti::tools
