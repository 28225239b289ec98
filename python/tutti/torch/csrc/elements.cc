#include "elements.h"

#include <stdexcept>
#include <string>

namespace tutti::pytorch {
namespace {

std::optional<ncclDataType_t> typeOf(at::ScalarType type) {
  switch (type) {
    case at::kChar: return ncclInt8;
    case at::kByte:
    case at::kBool: return ncclUint8;
    case at::kInt: return ncclInt32;
    case at::kLong: return ncclInt64;
    case at::kHalf: return ncclFloat16;
    case at::kFloat: return ncclFloat32;
    case at::kDouble: return ncclFloat64;
    case at::kBFloat16: return ncclBfloat16;
    default: break;
  }
  // Types that the oldest torch does not have are told by their names.
  const std::string name = c10::toString(type);
  if (name == "UInt32") return ncclUint32;
  if (name == "UInt64") return ncclUint64;
  if (name == "Float8_e4m3fn") return ncclFloat8e4m3;
  if (name == "Float8_e5m2") return ncclFloat8e5m2;
  return std::nullopt;
}

const char* nameOf(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    default: return "an unknown operation";
  }
}

[[noreturn]] void refuse(at::ScalarType type, const c10d::ReduceOp& op) {
  std::string advice;
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) advice = ": multiply the tensor, then use SUM";
  throw std::invalid_argument(std::string("ReduceOp.") + nameOf(op) + " of elements of type " +
                              c10::toString(type) + " is not there" + advice);
}

// Truth values are bytes of 0 and 1: a sum of them is an or, a product an and.
std::optional<ncclRedOp_t> foldOfTruth(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR: return ncclMax;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND: return ncclMin;
    default: return std::nullopt;
  }
}

}  // namespace

void checkTensor(const char* what, const at::Tensor& tensor) {
  if (!tensor.defined()) throw std::invalid_argument(std::string(what) + " is an undefined tensor");
  if (!tensor.device().is_cpu()) {
    throw std::invalid_argument(
        std::string(what) + " is on device " + tensor.device().str() +
        ": backend tutti takes CPU tensors; \"cpu:tutti,cuda:nccl\" gives each its own");
  }
  if (tensor.is_sparse() || tensor.layout() != at::kStrided) {
    throw std::invalid_argument(
        std::string(what) +
        " is a sparse tensor: sum them with all_reduce, or pass tensor.to_dense()");
  }
}

void checkTensors(const char* what, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) checkTensor(what, tensor);
}

void checkSameType(const char* what, const at::Tensor& tensor, const at::Tensor& as) {
  checkTensor(what, tensor);
  if (tensor.scalar_type() == as.scalar_type()) return;
  throw std::invalid_argument(std::string("invalid tensor type: ") + what +
                              " has elements of type " + c10::toString(tensor.scalar_type()) +
                              ", wanted " + c10::toString(as.scalar_type()) + " as the others");
}

void checkPairs(const char* call, const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& inputs) {
  if (outputs.size() != inputs.size()) {
    throw std::invalid_argument(std::string(call) + ": " + std::to_string(outputs.size()) +
                                " outputs for " + std::to_string(inputs.size()) +
                                " inputs, wanted as many");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    checkTensor((std::string(call) + "'s input").c_str(), inputs[i]);
    checkSameType((std::string(call) + "'s output").c_str(), outputs[i], inputs[i]);
  }
}

Span spanOf(const at::Tensor& tensor) {
  Span span{.data = tensor.data_ptr(), .bytes = tensor.nbytes()};
  if (const auto type = typeOf(tensor.scalar_type())) {
    span.type = *type;
    span.count = static_cast<size_t>(tensor.numel());
  } else {
    span.count = span.bytes;
  }
  return span;
}

std::optional<Fold> foldOf(at::ScalarType type, const c10d::ReduceOp& op) {
  const auto known = typeOf(type);
  if (!known) return std::nullopt;
  if (type == at::kBool) {
    const auto fold = foldOfTruth(op.op_);
    if (!fold) return std::nullopt;
    return Fold{*known, *fold};
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Fold{*known, ncclSum};
    case c10d::ReduceOp::AVG: return Fold{*known, ncclAvg};
    case c10d::ReduceOp::PRODUCT: return Fold{*known, ncclProd};
    case c10d::ReduceOp::MIN: return Fold{*known, ncclMin};
    case c10d::ReduceOp::MAX: return Fold{*known, ncclMax};
    default: return std::nullopt;
  }
}

void checkFold(at::ScalarType type, const c10d::ReduceOp& op) {
  if (foldOf(type, op)) return;
  const bool isInteger = at::isIntegralType(type, /*includeBool=*/true);
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
      if (!at::isComplexType(type)) return;
      break;
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      if (isInteger) return;
      break;
    default: break;
  }
  refuse(type, op);
}

void foldInto(at::Tensor& total, const at::Tensor& next, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: total.add_(next); return;
    case c10d::ReduceOp::PRODUCT: total.mul_(next); return;
    case c10d::ReduceOp::MIN: at::minimum_out(total, total, next); return;
    case c10d::ReduceOp::MAX: at::maximum_out(total, total, next); return;
    case c10d::ReduceOp::BAND: total.bitwise_and_(next); return;
    case c10d::ReduceOp::BOR: total.bitwise_or_(next); return;
    case c10d::ReduceOp::BXOR: total.bitwise_xor_(next); return;
    default: refuse(total.scalar_type(), op);
  }
}

Staged::Staged(const at::Tensor& tensor, Use use) : tensor_(tensor), use_(use) {
  if (tensor.is_contiguous()) {
    flat_ = tensor;
  } else if (use == Use::kWrite) {
    flat_ = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  } else {
    flat_ = tensor.contiguous();
  }
}

void Staged::giveBack() {
  if (use_ != Use::kRead && !flat_.is_same(tensor_)) tensor_.copy_(flat_);
}

std::vector<Staged> stagedOf(const std::vector<at::Tensor>& tensors, Staged::Use use) {
  std::vector<Staged> staged;
  staged.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) staged.emplace_back(tensor, use);
  return staged;
}

void giveBack(std::vector<Staged>& staged) {
  for (Staged& each : staged) each.giveBack();
}

}  // namespace tutti::pytorch
