// torch's process group over a tutti communicator of CPU ranks: backend "tutti".
#pragma once

#include <torch/version.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "arguments.h"
#include "coalescing.h"
#include "communicator.h"
#include "elements.h"
#include "gil.h"
#include "lane.h"
#include "point_to_point.h"
#include "warden.h"

namespace tutti::pytorch {

// Until torch 2 a backend was a process group.
#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

// Since torch 2.9 groups are also split and merged through their backends.
#define TUTTI_TORCH_HAS_SPLIT \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9))

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// Calls may come from any thread; those of one thread keep their order, as on all ranks they must.
//
// Every collective is an operation in a lane; its body runs there and calls the library without a
// stream, that is in the same thread. Messages between two ranks go their own way
// (point_to_point.h).
class ProcessGroup final : public Base, public Watched {
 public:
  struct Options {
    c10::intrusive_ptr<c10d::Store> store;
    int rank = 0;
    int size = 1;
    Milliseconds timeout{0};
  };
  // Returns when all ranks have come.
  static c10::intrusive_ptr<ProcessGroup> create(std::shared_ptr<const Library> library,
                                                 std::shared_ptr<Warden> warden,
                                                 const Options& options);
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "tutti"; }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& outputSplits, std::vector<int64_t>& inputSplits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return callCount_.load(std::memory_order_relaxed);
  }

#if TORCH_VERSION_MAJOR >= 2
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
#endif
  // Not marked as overrides: which versions of torch ask for them differs.
  bool supportsCoalescing() const { return true; }
  void startCoalescing() { coalescing_.start(); }
  WorkPointer endCoalescing() { return c10::make_intrusive<Batch>(coalescing_.end()); }

  void setTimeout(Milliseconds timeout);
#if TUTTI_TORCH_HAS_SPLIT
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Base::Options> getBackendOptions() override;
  // A group of some of this one's ranks, which alone wait for each other; null for the other ranks.
  c10::intrusive_ptr<Base> split(const c10::intrusive_ptr<c10d::Store>& store,
                                 const std::vector<int>& ranks,
                                 const c10::intrusive_ptr<Base::Options>& options) override;
  c10::intrusive_ptr<Base> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                 const c10::intrusive_ptr<Base::Options>& options, const int& rank,
                                 const int& size) override;
#endif

  // Ends everything that is under way on this rank; later calls fail with the reason.
  void close(const std::string& reason);

  void look(Instant now) override;
  void interrupt(bool any) override;
  void leave() override;

 private:
  using Body = std::function<void(Operation&)>;

  ProcessGroup(std::shared_ptr<const Library> library, std::shared_ptr<Warden> warden,
               const Options& options, std::unique_ptr<Communicator> communicator);

  // Queues an operation of the whole group.
  template <typename TorchOptions>
  WorkPointer submit(Operation::Call call, const TorchOptions& options, Body body);
  c10::intrusive_ptr<Operation> makeMessage(c10d::OpType type, const char* title,
                                            const at::Tensor& tensor);
  WorkPointer receive(c10d::OpType type, const at::Tensor& tensor, int from, int tag);
  WorkPointer allreduceSparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  Milliseconds timeoutOf(Milliseconds asked) const {
    return asked == c10d::kUnsetTimeout ? timeout_.load(std::memory_order_relaxed) : asked;
  }
  void checkRank(const char* what, int64_t rank) const;
  struct Rooted {
    const char* call;  // "gather"
    const char* part;  // "output"
    int64_t root;
  };
  // What the root has for each of the ranks, checked against `model`; nothing elsewhere.
  Tensors partsOfRoot(const Rooted& call, const std::vector<Tensors>& lists,
                      const at::Tensor& model) const;
  void checkProcess() const;

  // Bodies. In the lane's order, any thread.
  void check(ncclResult_t result, const Operation& operation) const;
  void reduceInPlace(const Operation& operation, const at::Tensor& tensor,
                     const c10d::ReduceOp& op) const;
  // foldOne(i) for each tensor: in one group where the library folds such elements, then the rest.
  void foldAll(const Operation& operation, const Tensors& tensors, const c10d::ReduceOp& op,
               const std::function<void(size_t)>& foldOne) const;
  void gatherInto(const Operation& operation, const at::Tensor& flatOutput,
                  const at::Tensor& input) const;
  void reduceScatterInto(const Operation& operation, const at::Tensor& flatOutput,
                         const at::Tensor& flatInput, const c10d::ReduceOp& op) const;
  void exchange(const Operation& operation, const Tensors& outputs, const Tensors& inputs) const;
  at::Tensor sumOfSparse(const Operation& operation, const at::Tensor& mine) const;

  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<Warden> warden_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<Milliseconds> timeout_;  // relaxed: of calls that begin later
  const int process_;
  // Shared with the lane, whose abort needs it.
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Lane> lane_;
  const std::unique_ptr<PointToPoint> messages_;
  Coalescing coalescing_;
#if TUTTI_TORCH_HAS_SPLIT
  // Shared with Python, which reads and names the group in it.
  const c10::intrusive_ptr<Base::Options> options_ =
      c10::make_intrusive<Base::Options>("tutti", timeoutOf(c10d::kUnsetTimeout));
#endif
  std::atomic<uint64_t> callCount_{0};
  std::atomic<uint64_t> barrierCount_{0};  // of monitored barriers
};

// Newer versions of torch tell whether the caller waits next.
template <typename TorchOptions>
bool isAsync(const TorchOptions& options) {
  if constexpr (requires { options.asyncOp; }) {
    return options.asyncOp;
  } else {
    return true;
  }
}

template <typename TorchOptions>
WorkPointer ProcessGroup::submit(Operation::Call call, const TorchOptions& options, Body body) {
  checkProcess();
  call.timeout = timeoutOf(options.timeout);
  callCount_.fetch_add(1, std::memory_order_relaxed);
  auto operation =
      c10::make_intrusive<Operation>(rank_, std::move(call), warden_->signals(), std::move(body));
  lane_->submit(operation, isAsync(options));
  coalescing_.add(operation);
  return operation;
}

}  // namespace tutti::pytorch
