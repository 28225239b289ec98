// What a kernel makes of the messages that come in: Folding reduces them, Moving keeps them.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

// Bytes as they are.
class Moving {
 public:
  static constexpr bool kFolds = false;
  static constexpr size_t kElementBytes = sizeof(uint4);

  __device__ Moving(const GpuCall&, int, int) {}

  template <typename W>
  __device__ __forceinline__ W outgoing(const W& raw) const {
    return raw;
  }
};

// Reduces in rank order, 0, 1, … n-1, whatever the algorithm, and rounds once: so the result
// depends on nothing but the inputs. A pre-multiplied input is rounded to its type first, on the
// rank that owns it: what its peers fold came to them that way.
//
// Elements that are integers stand for unsigned ones, too, as the call's type says.
template <typename Element>
class Folding {
 public:
  static constexpr bool kFolds = true;
  using Bits = typename Element::Bits;
  static constexpr size_t kElementBytes = sizeof(Bits);
  using Value = typename Element::Value;

  __device__ Folding(const GpuCall& call, int, int rankCount)
      : op_(call.op),
        rankCount_(rankCount),
        divisor_(call.op == ReduceOp::kAvg ? rankCount : 1),
        scales_(call.op == ReduceOp::kPreMulSum),
        isUnsigned_(isUnsigned(call.type)),
        changesSigns_(isUnsigned_ && (op_ == ReduceOp::kMax || op_ == ReduceOp::kMin)) {
    if (!scales_) return;
    union {
      uint64_t word;
      Bits bits;
    } scalar;
    scalar.word = call.scalar;
    if (call.scalarAddress != nullptr) scalar.bits = *static_cast<const Bits*>(call.scalarAddress);
    factor_ = Element::widen(scalar.bits);
  }

  __device__ __forceinline__ bool scales() const { return scales_; }
  __device__ __forceinline__ bool divides() const { return divisor_ > 1; }
  // Nothing but additions: what most calls are.
  __device__ __forceinline__ bool isSum() const { return op_ == ReduceOp::kSum; }

  // My input as peers and I fold it.
  template <typename W>
  __device__ __forceinline__ W outgoing(const W& raw) const {
    if (!scales_) return raw;
    auto lanes = Lanes<Element, W>::widen(raw);
    lanes.scale(factor_);
    return lanes.narrow();
  }

  // One contribution, ready to be folded with others.
  template <typename W>
  __device__ __forceinline__ auto lanesOf(const W& raw) const {
    if constexpr (kIsInteger<Element>) {
      if (changesSigns_) return Lanes<Element, W>::widen(withSignsChanged<Bits>(raw));
    }
    return Lanes<Element, W>::widen(raw);
  }
  template <typename W>
  __device__ __forceinline__ auto lanesOf(const W& raw, bool isInput) const {
    return lanesOf(isInput ? outgoing(raw) : raw);
  }
  template <typename W>
  __device__ __forceinline__ void add(Lanes<Element, W>& sum, const Lanes<Element, W>& next) const {
    sum.fold(op_, next);
  }
  // In the element's type; `isWhole`: of all contributions.
  template <typename W>
  __device__ __forceinline__ W resultOf(Lanes<Element, W>& sum, bool isWhole) const {
    if (isWhole && divides()) sum.divide(divisor_, isUnsigned_);
    const W result = sum.narrow();
    if constexpr (kIsInteger<Element>) {
      if (changesSigns_) return withSignsChanged<Bits>(result);
    }
    return result;
  }

  // As fold(), where isSum().
  template <int kMost, typename Source>
  __device__ __forceinline__ auto sum(const Source& value) const {
    using W = decltype(value(0));
    auto sum = Lanes<Element, W>::widen(value(0));
#pragma unroll
    for (int rank = 1; rank < kMost; ++rank) {
      if (kMost == 2 || rank < rankCount_) sum.add(Lanes<Element, W>::widen(value(rank)));
    }
    return sum.narrow();
  }

  // value(rank) is that rank's contribution; kMost bounds the rank count, so that all is unrolled.
  template <int kMost, typename Source>
  __device__ __forceinline__ auto fold(const Source& value) const {
    using W = decltype(value(0));
    W first = value(0);
    if (rankCount_ == 1) return first;
    auto sum = lanesOf(first);
#pragma unroll
    for (int rank = 1; rank < kMost; ++rank) {
      if (rank < rankCount_) add(sum, lanesOf<W>(value(rank)));
    }
    return resultOf(sum, true);
  }

 private:
  const ReduceOp op_;
  const int rankCount_;
  const int divisor_;
  const bool scales_;
  const bool isUnsigned_;
  const bool changesSigns_;  // while they are folded
  Value factor_{};
};

}  // namespace tutti::kernels::cuda
