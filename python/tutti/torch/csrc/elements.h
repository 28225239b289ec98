// What torch's tensors are to the library.
#pragma once

#include <ATen/ATen.h>
#include <nccl.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace tutti::pytorch {

// Refuses, with the reason, tensors that are not in CPU memory, or are sparse; `what` names the
// argument.
void checkTensor(const char* what, const at::Tensor& tensor);
void checkTensors(const char* what, const std::vector<at::Tensor>& tensors);
// Also when they are not of one type.
void checkSameType(const char* what, const at::Tensor& tensor, const at::Tensor& as);
// As many outputs as inputs, each of its input's type.
void checkPairs(const char* call, const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& inputs);

// Elements as the library counts them: of a type it knows, so that ranks with different types find
// out; otherwise bytes.
struct Span {
  void* data = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  size_t bytes = 0;
};
// Of a contiguous tensor.
Span spanOf(const at::Tensor& tensor);

// How the library reduces these elements; nothing when it does not, and foldInto() is to do it.
struct Fold {
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
};
std::optional<Fold> foldOf(at::ScalarType type, const c10d::ReduceOp& op);
// Refuses what neither can.
void checkFold(at::ScalarType type, const c10d::ReduceOp& op);
// total = total op next, elementwise.
void foldInto(at::Tensor& total, const at::Tensor& next, const c10d::ReduceOp& op);

// A contiguous stand-in for a tensor of any layout: the tensor itself where it is contiguous.
class Staged {
 public:
  enum class Use { kRead, kWrite, kReadWrite };
  Staged(const at::Tensor& tensor, Use use);
  const at::Tensor& flat() const { return flat_; }
  Span span() const { return spanOf(flat_); }
  // Brings what was written to the tensor.
  void giveBack();

 private:
  const at::Tensor tensor_;
  const Use use_;
  at::Tensor flat_;
};
std::vector<Staged> stagedOf(const std::vector<at::Tensor>& tensors, Staged::Use use);
void giveBack(std::vector<Staged>& staged);

}  // namespace tutti::pytorch
