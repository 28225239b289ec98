// Middling sends and receives of two ranks by rows (wide_lines.cuh): no fence, no barrier but the
// message's first, and a sixteenth of the link for the numbers.
//
// Warp w of the sender's block b sends to warp w of the receiver's, through a ring of
//   kGpuTransferRowPlaces rows: row n of all that they ever exchanged goes to place n modulo those,
//   and its lines end in n + 1, which no row before had. GpuRowRing has the counts.
// taken: written by the receiver's warp after the loads of so many rows have returned; read here by
//   the sender's before it writes a place again. Relaxed, as all credit: loads that have returned
//   cannot see later stores.
// tests/models/transfer_rows.pml goes through all orders.
#pragma once

#include "kernels/cuda/pump.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/transfer_message.cuh"

namespace tutti::kernels::cuda {

static_assert(kPumpThreads == 32 * wire::kGpuTransferRowWarps);

// A transfer as one of its blocks sees it. All threads of the block.
class RowTransfer : TransferMessage {
 public:
  __device__ RowTransfer(const GpuView& view, const wire::GpuTransfer& transfer)
      : TransferMessage(view, transfer),
        buffer_(transfer.buffer),
        bytes_(transfer.bytes),
        isAligned_(reinterpret_cast<uintptr_t>(transfer.buffer) % sizeof(uint4) == 0),
        warp_(static_cast<int>(threadIdx.x) / 32),
        rows_(static_cast<int>((transfer.bytes + wire::kGpuRowPayload - 1) / wire::kGpuRowPayload)),
        first_(warp_ * transfer.blocks + ring_),
        stride_(transfer.blocks * wire::kGpuTransferRowWarps) {}

  __device__ void send() {
    wire::GpuRowRing& own = ringOf(view_.rank);
    uint64_t count = loadRelaxed(&own.sent);
    uint64_t taken = loadRelaxed(&own.taken);
    uint4 values[kBatch];  // of the next rows
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = load(first_ + i * stride_);
    if (!beginSend()) return;
#pragma unroll 1
    for (int row = first_; row < rows_; row += kBatch * stride_) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = row + i * stride_;
        if (at >= rows_) break;
        if (!awaitPlace(own, count, taken)) return;
        storePart(placeOf(peer_, count), part_.numbered(values[i], count + 1));
        ++count;
        values[i] = load(at + kBatch * stride_);
      }
    }
    if (part_.lane == 0) own.sent = count;
  }

  __device__ void receive() {
    wire::GpuRowRing& own = ringOf(view_.rank);
    uint64_t count = loadRelaxed(&own.received);
    if (!beginReceive(loadReceived())) return;
#pragma unroll 1
    for (int row = first_; row < rows_; row += kBatch * stride_) {
      uint4 values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        values[i] = make_uint4(0, 0, 0, 0);
        if (row + i * stride_ < rows_) values[i] = loadPart(placeOf(view_.rank, count + i));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = row + i * stride_;
        if (at >= rows_) break;
        if (!await(values[i], count)) return;
        ++count;
        const size_t offset = offsetOf(at);
        part_.store(buffer_ + offset, values[i], part_.rest(offset, bytes_), isAligned_);
      }
      if (part_.lane == 0) storeRelaxed(&ringOf(peer_).taken, count);
    }
    if (part_.lane == 0) own.received = count;
    if (threadIdx.x == 0) checkCaller();
  }

 private:
  static constexpr int kBatch = 2;  // rows of a warp under way
  static constexpr unsigned kWarp = 0xffffffff;
  static_assert(kBatch <= wire::kGpuTransferRowPlaces);

  // This warp's in a rank's segment.
  __device__ __forceinline__ size_t ringNumber() const {
    return static_cast<size_t>(ring_ * wire::kGpuTransferRowWarps + warp_);
  }
  __device__ __forceinline__ wire::GpuRowRing& ringOf(int rank) const {
    return reinterpret_cast<wire::GpuRowRing*>(
        view_.segments[rank] + wire::gpuTransferRingOffset(view_.rankCount))[ringNumber()];
  }
  // This thread's vector of row `count` that the other rank writes in rank `at`'s segment.
  __device__ __forceinline__ uint4* placeOf(int at, uint64_t count) const {
    const size_t place =
        ringNumber() * wire::kGpuTransferRowPlaces + count % wire::kGpuTransferRowPlaces;
    return reinterpret_cast<uint4*>(view_.segments[at] +
                                    wire::gpuTransferRowOffset(view_.rankCount)) +
           place * (wire::kGpuRowBytes / sizeof(uint4)) + part_.lane;
  }

  __device__ __forceinline__ size_t offsetOf(int row) const {
    return static_cast<size_t>(row) * wire::kGpuRowPayload + part_.offset;
  }
  __device__ __forceinline__ uint4 load(int row) const {
    const size_t offset = offsetOf(row);
    return part_.load(buffer_ + offset, part_.rest(offset, bytes_), isAligned_);
  }

  // By all threads of the warp, to the same answer; false when that ended without.
  __device__ __forceinline__ bool awaitPlace(const wire::GpuRowRing& own, uint64_t count,
                                             uint64_t& taken) const {
    Patience patience;
    while (__any_sync(kWarp, taken + wire::kGpuTransferRowPlaces <= count) != 0) {
      const bool isOver = patience.isOver(view_, awaited(Collective::kSend));
      if (__any_sync(kWarp, isOver) != 0) return false;
      taken = loadRelaxed(&own.taken);
    }
    return true;
  }

  // The same of row `count`, of whose place `value` is what it held a while ago.
  __device__ __forceinline__ bool await(uint4& value, uint64_t count) const {
    Patience patience;
    while (__all_sync(kWarp, part_.isThere(value, count + 1)) == 0) {
      const bool isOver =
          patience.isOver(view_, awaited(Collective::kRecv)) || isOtherCall(patience);
      if (__any_sync(kWarp, isOver) != 0) return false;
      value = loadPart(placeOf(view_.rank, count));
    }
    return true;
  }

  std::byte* const buffer_;
  const uint64_t bytes_;
  const bool isAligned_;
  const int warp_;
  const int rows_;
  const int first_;  // of this warp's rows
  const int stride_;
  const RowPart part_;
};

}  // namespace tutti::kernels::cuda
