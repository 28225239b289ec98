// The collectives of a process group that move elements and reduce none, from one to many and from
// many to one.
#include "process_group.h"

namespace tutti::pytorch {

void ProcessGroup::gatherInto(const Operation& operation, const at::Tensor& flatOutput,
                              const at::Tensor& input) const {
  const Span span = spanOf(input);
  check(library_->allGather(span.data, flatOutput.data_ptr(), span.count, span.type,
                            communicator_->handle(), nullptr),
        operation);
}

WorkPointer ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  checkTensor("all_gather's input", input);
  checkSameType("all_gather's output", output, input);
  checkSize("all_gather's output", output.numel(), input.numel() * size_);
  return submit({c10d::OpType::_ALLGATHER_BASE, "tutti:_all_gather_base", {input}, {output}},
                options, [this, output, input](Operation& self) {
                  Staged from(input, Staged::Use::kRead);
                  Staged to(output, Staged::Use::kWrite);
                  gatherInto(self, to.flat(), from.flat());
                  to.giveBack();
                });
}

WorkPointer ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const at::Tensor input = single("all_gather's inputs", inputs);
  checkTensor("all_gather's input", input);
  if (outputs.size() != 1) throw std::invalid_argument("all_gather wants one list of outputs");
  const Tensors parts = outputs.front();
  checkCount("all_gather's outputs", parts.size(), size_);
  for (const at::Tensor& part : parts) {
    checkSameType("all_gather's output", part, input);
    checkSize("all_gather's output", part.numel(), input.numel());
  }
  return submit({c10d::OpType::ALLGATHER, "tutti:all_gather", inputs, parts}, options,
                [this, parts, input](Operation& self) {
                  Staged from(input, Staged::Use::kRead);
                  const at::Tensor all = at::empty({size_, input.numel()}, input.options());
                  gatherInto(self, all, from.flat());
                  for (int rank = 0; rank < size_; ++rank) {
                    const auto index = static_cast<size_t>(rank);
                    parts[index].copy_(all[rank].view(parts[index].sizes()));
                  }
                });
}

WorkPointer ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  checkCount("all_gather_coalesced's output lists", outputs.size(), size_);
  checkTensors("all_gather_coalesced's input", inputs);
  Tensors all;
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      throw std::invalid_argument("invalid size of output lists: " + std::to_string(list.size()) +
                                  " tensors, wanted as many as inputs, " +
                                  std::to_string(inputs.size()));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      checkSameType("all_gather_coalesced's output", list[i], inputs[i]);
      checkSize("all_gather_coalesced's output", list[i].numel(), inputs[i].numel());
      all.push_back(list[i]);
    }
  }
  return submit(
      {c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather", inputs, all}, options,
      [this, outputs, inputs](Operation& self) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          const at::Tensor gathered = at::empty({size_, inputs[i].numel()}, inputs[i].options());
          gatherInto(self, gathered, Staged(inputs[i], Staged::Use::kRead).flat());
          for (int rank = 0; rank < size_; ++rank) {
            const at::Tensor& output = outputs[static_cast<size_t>(rank)][i];
            output.copy_(gathered[rank].view(output.sizes()));
          }
        }
      });
}

Tensors ProcessGroup::partsOfRoot(const Rooted& call, const std::vector<Tensors>& lists,
                                  const at::Tensor& model) const {
  const std::string name = call.call;
  const std::string part = name + "'s " + call.part;
  checkRank((name + "'s root").c_str(), call.root);
  if (call.root != rank_) {
    if (lists.empty()) return {};
    throw std::invalid_argument(name + ": " + call.part + "s are for the root alone, rank " +
                                std::to_string(call.root));
  }
  if (lists.size() != 1)
    throw std::invalid_argument(name + "'s root wants one list of " + call.part + "s");
  checkCount((part + "s").c_str(), lists.front().size(), size_);
  for (const at::Tensor& each : lists.front()) {
    checkSameType(part.c_str(), each, model);
    checkSize(part.c_str(), each.numel(), model.numel());
  }
  return lists.front();
}

WorkPointer ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const at::Tensor input = single("gather's inputs", inputs);
  checkTensor("gather's input", input);
  const Tensors parts =
      partsOfRoot({.call = "gather", .part = "output", .root = options.rootRank}, outputs, input);
  const int root = static_cast<int>(options.rootRank);
  return submit({c10d::OpType::GATHER, "tutti:gather", inputs, parts}, options,
                [this, parts, input, root](Operation& self) {
                  Staged from(input, Staged::Use::kRead);
                  const Span span = from.span();
                  const at::Tensor all = flatLike(input, root == rank_ ? input.numel() * size_ : 0);
                  check(library_->gather(span.data, all.data_ptr(), span.count, span.type, root,
                                         communicator_->handle(), nullptr),
                        self);
                  for (size_t i = 0; i < parts.size(); ++i) {
                    const int64_t at = static_cast<int64_t>(i) * input.numel();
                    parts[i].copy_(all.narrow(0, at, input.numel()).view(parts[i].sizes()));
                  }
                });
}

WorkPointer ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  const at::Tensor output = single("scatter's outputs", outputs);
  checkTensor("scatter's output", output);
  const Tensors parts =
      partsOfRoot({.call = "scatter", .part = "input", .root = options.rootRank}, inputs, output);
  const int root = static_cast<int>(options.rootRank);
  return submit({c10d::OpType::SCATTER, "tutti:scatter", parts, outputs}, options,
                [this, parts, output, root](Operation& self) {
                  const at::Tensor all =
                      flatLike(output, root == rank_ ? output.numel() * size_ : 0);
                  for (size_t i = 0; i < parts.size(); ++i) {
                    all.narrow(0, static_cast<int64_t>(i) * output.numel(), output.numel())
                        .copy_(parts[i].reshape({-1}));
                  }
                  Staged to(output, Staged::Use::kWrite);
                  const Span span = to.span();
                  check(library_->scatter(all.data_ptr(), span.data, span.count, span.type, root,
                                          communicator_->handle(), nullptr),
                        self);
                  to.giveBack();
                });
}

}  // namespace tutti::pytorch
