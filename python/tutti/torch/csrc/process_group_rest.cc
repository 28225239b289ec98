// What of a process group is no plain collective: messages, sparse sums, the monitored barrier.
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "process_group.h"

namespace tutti::pytorch {

c10::intrusive_ptr<Operation> ProcessGroup::makeMessage(c10d::OpType type, const char* title,
                                                        const at::Tensor& tensor) {
  checkProcess();
  return c10::make_intrusive<Operation>(
      rank_, Operation::Call{type, title, {tensor}, {tensor}, timeoutOf(c10d::kUnsetTimeout)},
      warden_->signals(), nullptr);
}

WorkPointer ProcessGroup::send(Tensors& tensors, int to, int tag) {
  const at::Tensor tensor = single("send's tensors", tensors);
  checkTensor("send's tensor", tensor);
  checkRank("send's destination", to);
  if (to == rank_)
    throw std::invalid_argument("rank " + std::to_string(rank_) + " sends to itself");
  auto operation = makeMessage(c10d::OpType::SEND, "tutti:send", tensor);
  messages_->send({.operation = operation, .tensor = tensor.contiguous(), .peer = to, .tag = tag});
  coalescing_.add(operation);
  return operation;
}

WorkPointer ProcessGroup::receive(c10d::OpType type, const at::Tensor& tensor, int from, int tag) {
  checkTensor("recv's tensor", tensor);
  auto operation =
      makeMessage(type, type == c10d::OpType::RECV ? "tutti:recv" : "tutti:recvAnySource", tensor);
  auto staged = std::make_shared<Staged>(tensor, Staged::Use::kWrite);
  const auto finish = [staged] {
    const at::AutoDispatchBelowADInplaceOrView withoutAutograd;
    staged->giveBack();
  };
  messages_->receive({.operation = operation,
                      .tensor = staged->flat(),
                      .finish = finish,
                      .peer = from,
                      .tag = tag});
  coalescing_.add(operation);
  return operation;
}

WorkPointer ProcessGroup::recv(Tensors& tensors, int from, int tag) {
  checkRank("recv's source", from);
  if (from == rank_)
    throw std::invalid_argument("rank " + std::to_string(rank_) + " receives from itself");
  return receive(c10d::OpType::RECV, single("recv's tensors", tensors), from, tag);
}

WorkPointer ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(c10d::OpType::RECVANYSOURCE, single("recv's tensors", tensors),
                 PointToPoint::kAnyone, tag);
}

// Indices and values of all ranks, one behind the other, summed where they meet.
at::Tensor ProcessGroup::sumOfSparse(const Operation& operation, const at::Tensor& mine) const {
  const at::Tensor own = mine.coalesce();
  const at::Tensor indices = own.indices().contiguous();
  const at::Tensor values = own.values().contiguous();
  const at::Tensor counts = at::empty({size_}, at::kLong);
  const at::Tensor count = at::full({1}, own._nnz(), at::kLong);
  gatherInto(operation, counts, count);
  Tensors allIndices;
  Tensors allValues;
  for (int rank = 0; rank < size_; ++rank) {
    const int64_t length = counts.data_ptr<int64_t>()[rank];
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = length;
    allIndices.push_back(rank == rank_ ? indices
                                       : at::empty({indices.size(0), length}, indices.options()));
    allValues.push_back(rank == rank_ ? values : at::empty(shape, values.options()));
  }
  Group group(*library_);
  for (int rank = 0; rank < size_; ++rank) {
    for (const Tensors* list : {&allIndices, &allValues}) {
      const Span span = spanOf((*list)[static_cast<size_t>(rank)]);
      if (span.count == 0) continue;
      check(library_->broadcast(span.data, span.data, span.count, span.type, rank,
                                communicator_->handle(), nullptr),
            operation);
    }
  }
  group.end(operation.title());
  return at::sparse_coo_tensor(at::cat(allIndices, 1), at::cat(allValues, 0), mine.sizes(),
                               mine.options())
      .coalesce();
}

WorkPointer ProcessGroup::allreduceSparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor tensor = single("all_reduce's tensors", tensors);
  if (!tensor.device().is_cpu() || tensor.layout() != at::kSparse) {
    throw std::invalid_argument(
        "all_reduce's sparse tensor: wanted layout torch.sparse_coo in CPU memory");
  }
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM) {
    throw std::invalid_argument("all_reduce of sparse tensors: only ReduceOp.SUM is there");
  }
  return submit({c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors}, options,
                [this, tensor](Operation& self) mutable {
                  // Sparse tensors are taken apart by functions that autograd knows.
                  const at::NoGradGuard noGradients;
                  const at::Tensor sum = sumOfSparse(self, tensor.detach());
                  tensor.copy_(sum);
                });
}

#if TUTTI_TORCH_HAS_SPLIT
c10::intrusive_ptr<Base::Options> ProcessGroup::getBackendOptions() { return options_; }

c10::intrusive_ptr<Base> ProcessGroup::split(const c10::intrusive_ptr<c10d::Store>& store,
                                             const std::vector<int>& ranks,
                                             const c10::intrusive_ptr<Base::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  return merge(store, options, static_cast<int>(mine - ranks.begin()),
               static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<Base> ProcessGroup::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                             const c10::intrusive_ptr<Base::Options>& options,
                                             const int& rank, const int& size) {
  checkProcess();
  auto group = create(library_, warden_,
                      {.store = store, .rank = rank, .size = size, .timeout = options->timeout});
  group->options_->group_name = options->group_name;
  group->options_->global_ranks_in_group = options->global_ranks_in_group;
  return group;
}
#endif

// By the store alone, so that it tells who is missing whatever state the ranks' collectives are in.
// The texts are those that users of torch's own backends know.
void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) {
  const WithoutGil released;
  const Milliseconds timeout = timeoutOf(options.timeout);
  const std::string key = "tutti/barrier/" + std::to_string(barrierCount_.fetch_add(1)) + "/";
  const std::string mine = "[Rank " + std::to_string(rank_) + "]: ";
  if (rank_ != 0) {
    store_->set(key + std::to_string(rank_), bytesOf("here"));
    std::string verdict;
    // Rank 0 may have begun later, and then waits as long as we do.
    if (pollUntil([&] { return store_->check({key + "verdict"}); }, 2 * timeout,
                  warden_->signals())) {
      const std::vector<uint8_t> text = store_->get(key + "verdict");
      verdict.assign(text.begin(), text.end());
      if (verdict == "all") return;
    }
    throw std::runtime_error(
        mine + "Rank " + std::to_string(rank_) +
        " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank. " +
        verdict);
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) missing.push_back(rank);
  const auto areAllHere = [&] {
    std::erase_if(missing, [&](int rank) { return store_->check({key + std::to_string(rank)}); });
    return missing.empty();
  };
  if (pollUntil(areAllHere, timeout, warden_->signals()))
    return store_->set(key + "verdict", bytesOf("all"));
  std::string names;
  for (const int rank : missing) {
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
    if (!waitAllRanks) break;
  }
  const std::string text = timeout <= Milliseconds::zero()
                               ? mine + "Rank 0 timed out in monitoredBarrier after " +
                                     std::to_string(timeout.count()) + " ms."
                               : mine + (missing.size() > 1 && waitAllRanks ? "Ranks " : "Rank ") +
                                     names + " failed to pass monitoredBarrier in " +
                                     std::to_string(timeout.count()) + " ms";
  store_->set(key + "verdict", bytesOf(text));
  throw std::runtime_error(text);
}

}  // namespace tutti::pytorch
