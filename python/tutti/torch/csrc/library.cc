#include "library.h"

#include <dlfcn.h>

namespace tutti::pytorch {
namespace {

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string(name) +
                             " is missing in the library: is it tutti's, and of this version? " +
                             ::dlerror());
  }
}

}  // namespace

std::shared_ptr<const Library> Library::open(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its threads may
                                                                 // outlive us
  if (handle == nullptr) throw std::runtime_error(::dlerror());
  auto library = std::make_shared<Library>();
  find(handle, "ncclGetUniqueId", library->getUniqueId);
  find(handle, "ncclTuttiCommInitRankHost", library->commInitRank);
  find(handle, "ncclCommDestroy", library->commDestroy);
  find(handle, "ncclCommAbort", library->commAbort);
  find(handle, "ncclAllReduce", library->allReduce);
  find(handle, "ncclReduce", library->reduce);
  find(handle, "ncclReduceScatter", library->reduceScatter);
  find(handle, "ncclAllGather", library->allGather);
  find(handle, "ncclBroadcast", library->broadcast);
  find(handle, "ncclAlltoAll", library->allToAll);
  find(handle, "ncclGather", library->gather);
  find(handle, "ncclScatter", library->scatter);
  find(handle, "ncclSend", library->send);
  find(handle, "ncclRecv", library->recv);
  find(handle, "ncclGroupStart", library->groupStart);
  find(handle, "ncclGroupEnd", library->groupEnd);
  find(handle, "ncclGroupSimulateEnd", library->groupSimulateEnd);
  find(handle, "ncclGetLastError", library->getLastError);
  find(handle, "ncclGetErrorString", library->getErrorString);
  return library;
}

void Library::fail(ncclResult_t result, const std::string& doing) const {
  const char* reason = getLastError(nullptr);
  if (reason == nullptr || *reason == '\0') reason = getErrorString(result);
  throw std::runtime_error(doing + ": " + reason);
}

Group::~Group() {
  if (!isOpen_) return;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  library_.groupSimulateEnd(&info);
}

}  // namespace tutti::pytorch
