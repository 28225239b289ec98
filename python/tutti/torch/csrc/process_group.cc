#include "process_group.h"

#include <unistd.h>

#include <algorithm>

namespace tutti::pytorch {
namespace {

constexpr int64_t kFoldSlice = 256 << 10;  // bytes of each rank that are folded here at a time

}  // namespace

c10::intrusive_ptr<ProcessGroup> ProcessGroup::create(std::shared_ptr<const Library> library,
                                                      std::shared_ptr<Warden> warden,
                                                      const Options& options) {
  auto communicator = Communicator::meet(library, *options.store,
                                         {.prefix = "tutti",
                                          .rank = options.rank,
                                          .size = options.size,
                                          .timeout = options.timeout,
                                          .signals = warden->signals()});
  return c10::intrusive_ptr<ProcessGroup>::unsafe_steal_from_new(
      new ProcessGroup(std::move(library), std::move(warden), options, std::move(communicator)));
}

ProcessGroup::ProcessGroup(std::shared_ptr<const Library> library, std::shared_ptr<Warden> warden,
                           const Options& options, std::unique_ptr<Communicator> communicator)
    : Base(options.rank, options.size),
      library_(std::move(library)),
      warden_(std::move(warden)),
      store_(options.store),
      timeout_(options.timeout),
      process_(::getpid()),
      communicator_(std::move(communicator)),
      lane_(std::make_shared<Lane>([communicator = communicator_] { communicator->abort(); })),
      messages_(std::make_unique<PointToPoint>(library_, store_, options.rank, options.size)) {
  init();
  warden_->watch(this);
}

ProcessGroup::~ProcessGroup() {
  warden_->forget(this);
  if (process_ != ::getpid()) return;
  const WithoutGil released;  // operations under way may end in Python's callbacks
  lane_->drain();
  leave();
}

void ProcessGroup::leave() {
  if (process_ != ::getpid()) return;
  messages_->close("the process group was destroyed");
  // What runs is aborted, and peers get an error; otherwise they get a goodbye, from the
  // communicator's destructor.
  lane_->stop("the process group was destroyed");
}

void ProcessGroup::close(const std::string& reason) {
  messages_->close(reason);
  lane_->close(reason);
}

void ProcessGroup::look(Instant now) {
  lane_->look(now);
  messages_->look(now);
}

void ProcessGroup::interrupt(bool any) { lane_->interrupt(any); }

void ProcessGroup::setTimeout(Milliseconds timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);
#if TUTTI_TORCH_HAS_SPLIT
  options_->timeout = timeout;
#endif
}

void ProcessGroup::checkRank(const char* what, int64_t rank) const {
  if (rank >= 0 && rank < size_) return;
  throw std::invalid_argument(std::string(what) + " is " + std::to_string(rank) + ", wanted 0 to " +
                              std::to_string(size_ - 1));
}

void ProcessGroup::checkProcess() const {
  if (process_ == ::getpid()) return;
  throw std::runtime_error("this process group was made in process " + std::to_string(process_) +
                           ", and process " + std::to_string(::getpid()) +
                           " is a fork of it: call init_process_group after the fork");
}

void ProcessGroup::check(ncclResult_t result, const Operation& operation) const {
  if (result == ncclSuccess) return;
  library_->check(result, "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ", " +
                              operation.title());
}

WorkPointer ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = single("broadcast's tensors", tensors);
  checkTensor("broadcast's tensor", tensor);
  checkRank("broadcast's root", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  return submit({c10d::OpType::BROADCAST, "tutti:broadcast", tensors, tensors}, options,
                [this, tensor, root](Operation& self) {
                  Staged staged(tensor, root == rank_ ? Staged::Use::kRead : Staged::Use::kWrite);
                  const Span span = staged.span();
                  check(library_->broadcast(span.data, span.data, span.count, span.type, root,
                                            communicator_->handle(), nullptr),
                        self);
                  staged.giveBack();
                });
}

// `tensor` is contiguous. What the library does not fold is gathered, slice by slice, and folded
// here: in the order of the ranks, so all get the same.
void ProcessGroup::reduceInPlace(const Operation& operation, const at::Tensor& tensor,
                                 const c10d::ReduceOp& op) const {
  const ncclComm_t comm = communicator_->handle();
  if (const auto fold = foldOf(tensor.scalar_type(), op)) {
    void* data = tensor.data_ptr();
    const auto count = static_cast<size_t>(tensor.numel());
    return check(library_->allReduce(data, data, count, fold->type, fold->op, comm, nullptr),
                 operation);
  }
  const at::Tensor flat = tensor.view({-1});
  const int64_t step = std::max<int64_t>(1, kFoldSlice / tensor.element_size());
  for (int64_t at = 0; at < flat.numel(); at += step) {
    at::Tensor slice = flat.narrow(0, at, std::min(step, flat.numel() - at));
    const at::Tensor all = at::empty({size_, slice.numel()}, tensor.options());
    gatherInto(operation, all, slice);
    slice.copy_(all[0]);
    for (int rank = 1; rank < size_; ++rank) foldInto(slice, all[rank], op);
  }
}

WorkPointer ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = single("all_reduce's tensors", tensors);
  if (tensor.defined() && tensor.is_sparse()) return allreduceSparse(tensors, options);
  checkTensor("all_reduce's tensor", tensor);
  checkFold(tensor.scalar_type(), options.reduceOp);
  return submit({c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors}, options,
                [this, tensor, op = options.reduceOp](Operation& self) {
                  Staged staged(tensor, Staged::Use::kReadWrite);
                  reduceInPlace(self, staged.flat(), op);
                  staged.giveBack();
                });
}

void ProcessGroup::foldAll(const Operation& operation, const Tensors& tensors,
                           const c10d::ReduceOp& op,
                           const std::function<void(size_t)>& foldOne) const {
  const auto isTheLibrarys = [&](size_t i) {
    return foldOf(tensors[i].scalar_type(), op).has_value();
  };
  Group group(*library_);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (isTheLibrarys(i)) foldOne(i);
  group.end(operation.title());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!isTheLibrarys(i)) foldOne(i);
}

WorkPointer ProcessGroup::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  checkTensors("all_reduce_coalesced's tensor", tensors);
  for (const at::Tensor& tensor : tensors) checkFold(tensor.scalar_type(), options.reduceOp);
  return submit({c10d::OpType::ALLREDUCE_COALESCED, "tutti:all_reduce", tensors, tensors}, options,
                [this, tensors, op = options.reduceOp](Operation& self) {
                  std::vector<Staged> staged = stagedOf(tensors, Staged::Use::kReadWrite);
                  foldAll(self, tensors, op,
                          [&](size_t i) { reduceInPlace(self, staged[i].flat(), op); });
                  giveBack(staged);
                });
}

WorkPointer ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = single("reduce's tensors", tensors);
  checkTensor("reduce's tensor", tensor);
  checkFold(tensor.scalar_type(), options.reduceOp);
  checkRank("reduce's root", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  return submit({c10d::OpType::REDUCE, "tutti:reduce", tensors, tensors}, options,
                [this, tensor, root, op = options.reduceOp](Operation& self) {
                  Staged staged(tensor,
                                root == rank_ ? Staged::Use::kReadWrite : Staged::Use::kRead);
                  if (const auto fold = foldOf(tensor.scalar_type(), op)) {
                    const Span span = staged.span();
                    check(library_->reduce(span.data, span.data, span.count, fold->type, fold->op,
                                           root, communicator_->handle(), nullptr),
                          self);
                  } else {
                    // Only root's tensor may change.
                    const at::Tensor own = root == rank_ ? staged.flat() : staged.flat().clone();
                    reduceInPlace(self, own, op);
                  }
                  staged.giveBack();
                });
}

void ProcessGroup::reduceScatterInto(const Operation& operation, const at::Tensor& flatOutput,
                                     const at::Tensor& flatInput, const c10d::ReduceOp& op) const {
  const int64_t count = flatOutput.numel();
  if (const auto fold = foldOf(flatOutput.scalar_type(), op)) {
    return check(library_->reduceScatter(flatInput.data_ptr(), flatOutput.data_ptr(),
                                         static_cast<size_t>(count), fold->type, fold->op,
                                         communicator_->handle(), nullptr),
                 operation);
  }
  const at::Tensor all = flatInput.clone();
  reduceInPlace(operation, all, op);
  flatOutput.view({-1}).copy_(all.view({-1}).narrow(0, rank_ * count, count));
}

WorkPointer ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  checkTensor("reduce_scatter's input", input);
  checkSameType("reduce_scatter's output", output, input);
  checkSize("reduce_scatter's input", input.numel(), output.numel() * size_);
  checkFold(output.scalar_type(), options.reduceOp);
  return submit(
      {c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:_reduce_scatter_base", {input}, {output}},
      options, [this, output, input, op = options.reduceOp](Operation& self) {
        Staged to(output, Staged::Use::kWrite);
        reduceScatterInto(self, to.flat(), Staged(input, Staged::Use::kRead).flat(), op);
        to.giveBack();
      });
}

WorkPointer ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = single("reduce_scatter's outputs", outputs);
  checkTensor("reduce_scatter's output", output);
  checkFold(output.scalar_type(), options.reduceOp);
  if (inputs.size() != 1) throw std::invalid_argument("reduce_scatter wants one list of inputs");
  const Tensors parts = inputs.front();
  checkCount("reduce_scatter's inputs", parts.size(), size_);
  for (const at::Tensor& part : parts) {
    checkSameType("reduce_scatter's input", part, output);
    checkSize("reduce_scatter's input", part.numel(), output.numel());
  }
  return submit(
      {c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", parts, outputs}, options,
      [this, output, parts, op = options.reduceOp](Operation& self) {
        const int64_t count = output.numel();
        const at::Tensor all = flatLike(output, count * size_);
        for (int rank = 0; rank < size_; ++rank) {
          all.narrow(0, rank * count, count).copy_(parts[static_cast<size_t>(rank)].reshape({-1}));
        }
        Staged to(output, Staged::Use::kWrite);
        reduceScatterInto(self, to.flat(), all, op);
        to.giveBack();
      });
}

void ProcessGroup::exchange(const Operation& operation, const Tensors& outputs,
                            const Tensors& inputs) const {
  std::vector<Staged> to = stagedOf(outputs, Staged::Use::kWrite);
  const std::vector<Staged> from = stagedOf(inputs, Staged::Use::kRead);
  const ncclComm_t comm = communicator_->handle();
  Group group(*library_);
  for (int peer = 0; peer < size_; ++peer) {
    const Span out = from[static_cast<size_t>(peer)].span();
    const Span in = to[static_cast<size_t>(peer)].span();
    if (out.count != 0)
      check(library_->send(out.data, out.count, out.type, peer, comm, nullptr), operation);
    if (in.count != 0)
      check(library_->recv(in.data, in.count, in.type, peer, comm, nullptr), operation);
  }
  group.end(operation.title());
  giveBack(to);
}

WorkPointer ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& outputSplits,
                                        std::vector<int64_t>& inputSplits,
                                        const c10d::AllToAllOptions& options) {
  checkTensor("all_to_all's input", input);
  checkSameType("all_to_all's output", output, input);
  const Tensors to = splitOf("all_to_all's output", output, outputSplits, size_);
  const Tensors from = splitOf("all_to_all's input", input, inputSplits, size_);
  const bool isEven = outputSplits.empty() && inputSplits.empty();
  if (isEven) checkSize("all_to_all's output", output.numel(), input.numel());
  return submit({c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", {input}, {output}}, options,
                [this, to, from, isEven, output, input](Operation& self) {
                  if (!isEven) return exchange(self, to, from);
                  const Span span = spanOf(input);
                  const size_t count = span.count / static_cast<size_t>(size_);
                  check(library_->allToAll(span.data, output.data_ptr(), count, span.type,
                                           communicator_->handle(), nullptr),
                        self);
                });
}

WorkPointer ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  checkCount("all_to_all's inputs", inputs.size(), size_);
  checkCount("all_to_all's outputs", outputs.size(), size_);
  checkTensors("all_to_all's input", inputs);
  for (const at::Tensor& output : outputs)
    checkSameType("all_to_all's output", output, inputs.front());
  return submit({c10d::OpType::ALLTOALL, "tutti:all_to_all", inputs, outputs}, options,
                [this, outputs, inputs](Operation& self) { exchange(self, outputs, inputs); });
}

WorkPointer ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  return submit({c10d::OpType::BARRIER, "tutti:barrier", {}, {}}, options, [this](Operation& self) {
    uint8_t token = 0;
    check(library_->allReduce(&token, &token, 1, ncclUint8, ncclMax, communicator_->handle(),
                              nullptr),
          self);
  });
}

#if TORCH_VERSION_MAJOR >= 2
WorkPointer ProcessGroup::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  return allreduceSparse(tensors, options);
}

WorkPointer ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  checkPairs("all_gather_into_tensor_coalesced", outputs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    checkSize("all_gather_into_tensor_coalesced's output", outputs[i].numel(),
              inputs[i].numel() * size_);
  return submit({c10d::OpType::_ALLGATHER_BASE, "tutti:all_gather", inputs, outputs}, options,
                [this, outputs, inputs](Operation& self) {
                  const std::vector<Staged> from = stagedOf(inputs, Staged::Use::kRead);
                  std::vector<Staged> to = stagedOf(outputs, Staged::Use::kWrite);
                  Group group(*library_);
                  for (size_t i = 0; i < inputs.size(); ++i)
                    gatherInto(self, to[i].flat(), from[i].flat());
                  group.end(self.title());
                  giveBack(to);
                });
}

WorkPointer ProcessGroup::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  checkPairs("reduce_scatter_tensor_coalesced", outputs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    checkSize("reduce_scatter_tensor_coalesced's input", inputs[i].numel(),
              outputs[i].numel() * size_);
    checkFold(outputs[i].scalar_type(), options.reduceOp);
  }
  return submit({c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter", inputs, outputs},
                options, [this, outputs, inputs, op = options.reduceOp](Operation& self) {
                  const std::vector<Staged> from = stagedOf(inputs, Staged::Use::kRead);
                  std::vector<Staged> to = stagedOf(outputs, Staged::Use::kWrite);
                  foldAll(self, outputs, op, [&](size_t i) {
                    reduceScatterInto(self, to[i].flat(), from[i].flat(), op);
                  });
                  giveBack(to);
                });
}
#endif

}  // namespace tutti::pytorch
