// The calls of one action on one rank: their buffers, the calls themselves, and the check of every
// element, of the bands around the buffers, and of inputs that must not change.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "plan.h"

namespace tutti::soak {

// Memory of `elements` elements, out of alignment by `shift` elements, between bands of a pattern.
class Buffer {
 public:
  Buffer(ncclDataType_t type, size_t elements, size_t shift, bool fromLibrary);
  std::byte* at(size_t element) { return data_ + element * elementBytes_; }
  uint64_t read(size_t element) const;
  void write(size_t element, uint64_t bits);
  bool isPoison(size_t element) const;
  // Whether nothing was written beyond either end.
  bool isWhole() const;

 private:
  struct Free {
    bool fromLibrary;
    void operator()(std::byte* memory) const;
  };
  size_t elementBytes_;
  size_t dataBytes_;
  size_t totalBytes_;
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_;
};

class PendingCall {
 public:
  PendingCall(const Call& call, const Team& team, int place);
  // Gives the call to the library. NULL stream: done on return, unless inside a group.
  ncclResult_t issue(ncclComm_t comm, cudaStream_t stream);
  // "" when all is right. After the call is done.
  std::string check();
  const Call& call() const { return call_; }

 private:
  ncclResult_t exchange(ncclComm_t comm, cudaStream_t stream);
  std::string wrong(const char* what, size_t i, uint64_t got, uint64_t wanted) const;

  const Call& call_;
  int teamSize_;
  int place_;
  size_t inputCount_;
  size_t outputCount_;
  size_t ownAt_ = 0;  // in place: where in the larger buffer the smaller one begins
  bool inPlace_;      // of this rank: ranks without input or output have nothing to share
  std::unique_ptr<Buffer> input_;
  std::unique_ptr<Buffer> output_;  // null when in place
};

}  // namespace tutti::soak
