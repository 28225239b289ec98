// One collective or message under way: what torch calls a Work.
#pragma once

#include <ATen/ATen.h>
#include <torch/version.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace tutti::pytorch {

using Instant = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

class Lane;

// Whether the calling thread is the process's first, which gets Python's signals.
bool isMainThread();

// Lets Python handle signals that have come, which may throw (KeyboardInterrupt). Called by the
// main thread, without the GIL.
using SignalCheck = void (*)();

class Operation final : public c10d::Work {
 public:
  struct Call {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = "";           // "tutti:all_reduce", in profiles and errors
    std::vector<at::Tensor> inputs;   // told to the profiler
    std::vector<at::Tensor> outputs;  // what result() and the future return
    Milliseconds timeout{0};          // from now on; 0: none
  };

  // `body` does the work in the thread that runs the operation, throws when it fails, and is let go
  // afterwards, with the tensors that it holds.
  Operation(int rank, Call call, SignalCheck signals, std::function<void(Operation&)> body);

  // Set when the lane gets the operation, before any other thread sees it.
  void queueIn(std::shared_ptr<Lane> lane) { lane_ = std::move(lane); }

  // Runs the body. Nobody else does, and nobody has failed it before.
  void run();
  // Ends the operation; the first end counts.
  void succeed();
  void failWith(const std::string& reason);
  void setSource(int rank) { source_ = rank; }

  const char* title() const { return title_; }
  Instant deadline() const { return deadline_; }
  Milliseconds timeout() const { return timeout_; }
  bool isOver() const { return isOver_.load(std::memory_order_acquire); }

  bool isCompleted() override { return isOver(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}
  // With a timeout: gives up waiting then, while the operation goes on.
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void end(std::exception_ptr error);
  void waitForEnd(Milliseconds timeout);
  std::shared_ptr<Lane> lane() const;
  void completeFuture();

  const char* const title_;
  const std::vector<at::Tensor> outputs_;
  const Milliseconds timeout_;
  const Instant deadline_;
  const SignalCheck signals_;
  std::shared_ptr<Lane> lane_;       // guarded by mutex_ of the base; shared with the process group
                                     // until the end
  std::atomic<bool> isOver_{false};  // release: publishes outputs, source and error
  std::function<void(Operation&)> body_;
  int source_ = -1;
  std::exception_ptr error_;                        // written before isOver_
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_ of the base
  bool isFutureTold_ = false;                       // guarded by mutex_ of the base
};

// Several operations as one.
class Batch final : public c10d::Work {
 public:
  explicit Batch(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace tutti::pytorch
