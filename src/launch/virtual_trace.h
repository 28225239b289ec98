// VirtualTrace: the file in which virtual ranks' calls are written down, for `tutti sim --trace`.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "launch/call.h"

namespace tutti::launch {

// Thread-safe. Lines are whole; the last ones are on disk once flush() was called.
class VirtualTrace {
 public:
  static Result<std::unique_ptr<VirtualTrace>> open(const std::string& path);

  // Begins a communicator: ranks of the cluster in order. The name under which record() takes it.
  std::string declare(const std::string& name, std::span<const Rank> places);
  // The calls of one group of the cluster's rank `place`.
  void record(const std::string& group, Rank place, std::span<const StreamCall> calls);
  void flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit VirtualTrace(std::FILE* file) : file_(file) {}
  void write(const std::string& text);

  std::mutex mutex_;  // guards the rest
  std::unique_ptr<std::FILE, Close> file_;
  std::map<std::string, int32_t> names_;  // how often each was declared
  uint64_t batches_ = 0;
  bool hasFailed_ = false;
};

}  // namespace tutti::launch
