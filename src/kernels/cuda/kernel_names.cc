#include "kernels/cuda/kernel_names.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/cuda/catalog.h"

namespace tutti::kernels::cuda {

const char* slotKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldSlots2" : "tuttiMoveSlots2";
  if (rankCount <= 4) return fold ? "tuttiFoldApart4" : "tuttiMoveApart4";
  return fold ? "tuttiFoldApart8" : "tuttiMoveApart8";
}

const char* sharingKernel(int32_t rankCount) {
  if (rankCount <= 2) return "tuttiMoveSharing2";
  return rankCount <= 4 ? "tuttiMoveSharing4" : "tuttiMoveSharing8";
}

const char* lineKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldLines2" : "tuttiMoveLines2";
  if (rankCount <= 4) return fold ? "tuttiFoldLines4" : "tuttiMoveLines4";
  return fold ? "tuttiFoldLines8" : "tuttiMoveLines8";
}

const char* stageKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 4) return fold ? "tuttiFoldTwoStages4" : "tuttiMoveTwoStages4";
  return fold ? "tuttiFoldTwoStages8" : "tuttiMoveTwoStages8";
}

const char* wideKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldWide2" : "tuttiMoveWide2";
  if (rankCount <= wire::kGpuRowRanks) return fold ? "tuttiFoldWide4" : "tuttiMoveWide4";
  return nullptr;
}

uint32_t mostSharedBytes(std::string_view kernel, int32_t rankCount) {
  const bool isApart = rankCount > 2 && (kernel == slotKernel(true, rankCount) ||
                                         kernel == slotKernel(false, rankCount));
  return isApart ? wire::gpuBulkBytes(rankCount) : 0;
}

namespace {

// The newest of the architectures whose code runs on such a GPU; 0: none. All have machine code,
// and the last one PTX.
int32_t runningOn(std::string_view architectures, int32_t capability) {
  int32_t last = 0;
  int32_t newest = 0;
  for (size_t at = 0; at < architectures.size();) {
    const size_t end = std::min(architectures.find(' ', at), architectures.size());
    last = 0;
    for (const char digit : architectures.substr(at, end - at)) last = last * 10 + (digit - '0');
    if (last / 10 == capability / 10 && last <= capability) newest = std::max(newest, last);
    at = end + 1;
  }
  return newest == 0 && last <= capability ? last : newest;
}

}  // namespace

// Machine code runs on later GPUs of its generation (the tens), PTX on all later ones.
bool doRunOn(std::string_view architectures, int32_t capability) {
  return runningOn(architectures, capability) != 0;
}

bool canBulk(std::string_view architectures, int32_t capability, uint32_t sharedBytesPerBlock) {
  constexpr int32_t kLeast = 90;
  constexpr uint32_t kOfKernel = 16_KiB;  // what one declares by itself, and more
  uint32_t most = 0;
  for (int32_t ranks = 3; ranks <= wire::kGpuMaxRanks; ++ranks)
    most = std::max(most, wire::gpuBulkBytes(ranks));
  return runningOn(architectures, capability) >= kLeast && sharedBytesPerBlock >= most + kOfKernel;
}

KernelNames kernelNames(int32_t image, int32_t rankCount) {
  if (image >= kProgramImages) {
    if (image != kProgramImages + kMoveImage) return {"tuttiFoldProgram"};
    return {"tuttiMoveProgram", "tuttiProgramTransfers"};
  }
  if (rankCount > wire::kGpuMaxRanks) return {};
  const bool fold = image != kMoveImage;
  const char* transfers = rankCount == 2 ? kFoldTransfers : nullptr;
  return {lineKernel(fold, rankCount),
          slotKernel(fold, rankCount),
          rankCount > 2 ? stageKernel(fold, rankCount) : nullptr,
          fold ? transfers : transferKernel().kernel,
          fold ? nullptr : sharingKernel(rankCount),
          wideKernel(fold, rankCount)};
}

const char* stepKernel(DataType type) {
  switch (type) {
    case DataType::kInt8: return "tuttiStep_kInt8";
    case DataType::kUint8: return "tuttiStep_kUint8";
    case DataType::kInt32: return "tuttiStep_kInt32";
    case DataType::kUint32: return "tuttiStep_kUint32";
    case DataType::kInt64: return "tuttiStep_kInt64";
    case DataType::kUint64: return "tuttiStep_kUint64";
    case DataType::kFloat16: return "tuttiStep_kFloat16";
    case DataType::kFloat32: return "tuttiStep_kFloat32";
    case DataType::kFloat64: return "tuttiStep_kFloat64";
    case DataType::kBfloat16: return "tuttiStep_kBfloat16";
    case DataType::kFloat8E4M3: return "tuttiStep_kFloat8E4M3";
    case DataType::kFloat8E5M2: return "tuttiStep_kFloat8E5M2";
  }
  return "";
}

}  // namespace tutti::kernels::cuda
