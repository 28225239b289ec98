// Short sends and receives by lines (lines.cuh): no fence, and one trip where slots take two. Each
// block of the transfer moves its share of the bytes as one message of its ring.
//
// A line: written by one thread of the sender's block, read by the thread of the same number of the
//   receiver's. The flag is made of the message's number in its ring, which slots and lines count
//   together, and stands in both halves, because only 8 bytes are sure to become visible together.
// Messages take the two sets in turn, so the lines of number m replace those of m - 2 or older
//   ones. The sender waits for the credit that says that all before m - 1 are taken, which the
//   receiver gives as it begins m - 1 at the latest. Relaxed, as all credit: loads that have
//   returned cannot see later stores.
// mark: transfer_message.cuh.
// The flag wraps after 2^32 messages of a ring: every 2^24 the receiver clears the set that comes
//   next, before the credit without which nothing is written there. Not at the start: the first
//   two messages need no credit.
#pragma once

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/transfer_message.cuh"

namespace tutti::kernels::cuda {

// Lines of ring `ring`, fewer than kGpuTransferLineBlocks, that rank `from` writes in rank `at`'s
// segment.
__device__ __forceinline__ uint4* transferLinesOf(const GpuView& view, uint64_t number, int at,
                                                  int from, int ring) {
  const auto source = static_cast<size_t>(from < at ? from : from - 1);
  const auto peers = static_cast<size_t>(view.rankCount - 1);
  const size_t area = ((number & 1) * peers + source) * wire::kGpuTransferLineBlocks + ring;
  auto* lines =
      reinterpret_cast<uint4*>(view.segments[at] + wire::gpuTransferLineOffset(view.rankCount));
  return lines + area * wire::gpuTransferLines(view.rankCount);
}

// A short transfer as one of its blocks sees it. All threads of the block.
class LineTransfer : TransferMessage {
 public:
  __device__ LineTransfer(const GpuView& view, const wire::GpuTransfer& transfer)
      : TransferMessage(view, transfer) {
    const uint64_t all = (transfer.bytes + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
    const uint64_t share = (all + transfer.blocks - 1) / transfer.blocks * wire::kGpuLinePayload;
    const uint64_t start = min(share * ring_, transfer.bytes);
    buffer_ = transfer.buffer + start;
    bytes_ = static_cast<uint32_t>(min(share, transfer.bytes - start));
    lines_ = (bytes_ + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
  }

  __device__ void send() {
    uint2 values[kBatch];
    load(values, threadIdx.x);  // under way while the credit comes
    if (!beginSend()) return;
    store(values, threadIdx.x);
    for (uint32_t line = threadIdx.x + kStride; line < lines_; line += kStride) {
      load(values, line);
      store(values, line);
    }
  }

  __device__ void receive() {
    const uint32_t dead = loadReceived();
    if (number_ >= kClearEvery && number_ % kClearEvery < 2) clearNext();
    if (!beginReceive(dead)) return;
    for (uint32_t line = threadIdx.x; line < lines_; line += kStride) {
      if (!keep(line)) return;
    }
    if (threadIdx.x == 0) checkCaller();
  }

 private:
  static constexpr int kBatch = 4;  // lines of a thread under way
  static constexpr uint32_t kThreads = kPumpThreads;
  static constexpr uint32_t kStride = kBatch * kThreads;

  __device__ __forceinline__ int rest(uint32_t line) const {
    return static_cast<int>(min(bytes_ - line * uint32_t{wire::kGpuLinePayload}, 8U));
  }

  __device__ __forceinline__ void load(uint2 (&values)[kBatch], uint32_t first) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t line = first + i * kThreads;
      if (line < lines_) {
        values[i] = loadAny<uint2>(buffer_ + size_t{line} * wire::kGpuLinePayload, rest(line));
      }
    }
  }

  __device__ __forceinline__ void store(const uint2 (&values)[kBatch], uint32_t first) const {
    uint4* lines = transferLinesOf(view_, number_, peer_, view_.rank, ring_);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t line = first + i * kThreads;
      if (line < lines_) storeLine(lines + line, values[i], lineFlag(number_));
    }
  }

  // Takes a batch of lines; false when that ended without.
  __device__ __forceinline__ bool keep(uint32_t first) const {
    const uint4* lines = transferLinesOf(view_, number_, view_.rank, peer_, ring_);
    const uint32_t flag = lineFlag(number_);
    uint4 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t line = first + i * kThreads;
      if (line < lines_) values[i] = loadLine(lines + line);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t line = first + i * kThreads;
      if (line >= lines_) return true;
      Patience patience;
      while (values[i].y != flag || values[i].w != flag) {
        if (patience.isOver(view_, awaited(Collective::kRecv)) || isOtherCall(patience)) {
          return false;
        }
        values[i] = loadLine(lines + line);
      }
      storeAny(buffer_ + size_t{line} * wire::kGpuLinePayload, make_uint2(values[i].x, values[i].z),
               rest(line));
    }
    return true;
  }

  __device__ void clearNext() const {
    uint4* lines = transferLinesOf(view_, number_ + 1, view_.rank, peer_, ring_);
    for (size_t i = threadIdx.x; i < wire::gpuTransferLines(view_.rankCount); i += blockDim.x) {
      lines[i] = make_uint4(0, 0, 0, 0);
    }
    fenceSystem();
  }

  std::byte* buffer_;
  uint32_t bytes_;  // of this block
  uint32_t lines_;
};

}  // namespace tutti::kernels::cuda
