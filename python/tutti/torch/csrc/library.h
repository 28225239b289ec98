// libnccl.so.2 of tutti, opened by its path: NVIDIA's library of that name may be in the process,
// too, so nothing is linked and no name is looked up globally.
#pragma once

#include <nccl.h>
#include <tutti/host.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace tutti::pytorch {

class Library {
 public:
  // Throws std::runtime_error with the loader's reason.
  static std::shared_ptr<const Library> open(const std::string& path);

  // Throws what the library says of the failed call of this thread, behind `doing`.
  void check(ncclResult_t result, const std::string& doing) const {
    if (result != ncclSuccess) fail(result, doing);
  }

  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclTuttiCommInitRankHost) commInitRank;
  decltype(&ncclCommDestroy) commDestroy;
  decltype(&ncclCommAbort) commAbort;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduceScatter;
  decltype(&ncclAllGather) allGather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAlltoAll) allToAll;
  decltype(&ncclGather) gather;
  decltype(&ncclScatter) scatter;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGroupStart) groupStart;
  decltype(&ncclGroupEnd) groupEnd;
  decltype(&ncclGroupSimulateEnd) groupSimulateEnd;
  decltype(&ncclGetLastError) getLastError;
  decltype(&ncclGetErrorString) getErrorString;

 private:
  [[noreturn]] void fail(ncclResult_t result, const std::string& doing) const;
};

// The calls of its scope are done as one by end(). A scope that is left before, by an exception,
// does nothing of it.
class Group {
 public:
  explicit Group(const Library& library) : library_(library) {
    library_.check(library_.groupStart(), "group");
  }
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end(const std::string& doing) {
    isOpen_ = false;
    library_.check(library_.groupEnd(), doing);
  }

 private:
  const Library& library_;
  bool isOpen_ = true;
};

}  // namespace tutti::pytorch
