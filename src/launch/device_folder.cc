#include "launch/device_folder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/relax_cpu.h"
#include "base/units.h"
#include "kernels/gpu_catalog.h"
#include "wire/gpu_fold.h"

namespace tutti::launch {
namespace {

constexpr uint32_t kMaxBlocks = 128;
constexpr size_t kVectorBytes = 16;
constexpr size_t kAlignment = 64;
constexpr uint32_t kLooksBetweenErrors = 1024;

}  // namespace

bool DeviceFolder::canFold() { return !kernels::cuda::stepImage().empty(); }

Result<std::unique_ptr<DeviceFolder>> DeviceFolder::open(device::Accelerator& accelerator) {
  std::unique_ptr<DeviceFolder> folder(new DeviceFolder(accelerator));
  TUTTI_TRY(folder->initialise());
  return folder;
}

Status DeviceFolder::initialise() {
  TUTTI_TRY_ASSIGN(stream_, accelerator_.createUrgentStream());
  TUTTI_TRY_ASSIGN(event_, accelerator_.createEvent());
  TUTTI_TRY_ASSIGN(word_, accelerator_.makeWords(sizeof(Ticket)));
  TUTTI_TRY_ASSIGN(bounce_, accelerator_.makeWords(kBounceBytes));
  if (!canFold()) return {};
  for (int i = 0; i < kDataTypeCount; ++i) {
    TUTTI_TRY_ASSIGN(
        kernels_[static_cast<size_t>(i)],
        accelerator_.findKernel(kernels::cuda::stepImage(),
                                kernels::cuda::stepKernel(static_cast<DataType>(i)), 0));
  }
  return {};
}

DeviceFolder::~DeviceFolder() {
  while (!isIdle()) relaxCpu();
  accelerator_.destroyEvent(event_);
  accelerator_.destroyStream(stream_);
}

bool DeviceFolder::isIdle() {
  Result<bool> isLastDone = isDone(last_);
  return !isLastDone.ok() || *isLastDone;
}

Result<bool> DeviceFolder::isForeign(const void* memory) {
  TUTTI_TRY_ASSIGN(const device::MemoryPlace place, accelerator_.placeOf(memory));
  return place == device::MemoryPlace::kUnknownHost;
}

// What is handed out comes back when nothing is under way; there is rarely more than one.
Status DeviceFolder::makeRoom(size_t bytes) {
  if (used_ + bytes <= kBounceBytes) return {};
  while (!isIdle()) relaxCpu();
  if (used_ + bytes <= kBounceBytes) return {};
  return invalidUsage(
      "a step on a GPU has {} bytes in memory of the host, of which {} are taken: "
      "NCCL_NET_GDR_LEVEL=LOC goes without GPUDirect",
      bytes, kBounceBytes);
}

std::byte* DeviceFolder::take(size_t bytes) {
  return static_cast<std::byte*>(bounce_->hostAddress()) +
         std::exchange(used_, used_ + roundUp(bytes, kAlignment));
}

Result<DeviceFolder::Ticket> DeviceFolder::start(const kernels::FoldSpec& spec,
                                                 const kernels::FoldArgs& args) {
  const size_t bytes = args.elementCount * sizeOf(spec.type);
  sources_.assign(args.sources.begin(), args.sources.end());
  destinations_.assign(args.destinations.begin(), args.destinations.end());
  isForeign_.clear();
  for (const void* each : sources_) {
    TUTTI_TRY_ASSIGN(const bool foreign, isForeign(each));
    isForeign_.push_back(foreign);
  }
  for (const void* each : destinations_) {
    TUTTI_TRY_ASSIGN(const bool foreign, isForeign(each));
    isForeign_.push_back(foreign);
  }
  const auto count = static_cast<size_t>(std::ranges::count(isForeign_, true));
  TUTTI_TRY(makeRoom(count * roundUp(bytes, kAlignment)));
  const Ticket ticket = last_ + 1;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (isForeign_[i]) sources_[i] = std::memcpy(take(bytes), sources_[i], bytes);
  }
  for (size_t i = 0; i < destinations_.size(); ++i) {
    if (!isForeign_[sources_.size() + i]) continue;
    std::byte* place = take(bytes);
    returns_.push_back({.ticket = ticket, .to = destinations_[i], .from = place, .bytes = bytes});
    destinations_[i] = place;
  }
  TUTTI_TRY(fold(spec, {.sources = sources_,
                        .destinations = destinations_,
                        .elementCount = args.elementCount,
                        .scaledSource = args.scaledSource,
                        .post = args.post}));
  TUTTI_TRY(accelerator_.writeWord(word_->deviceAddress(), ticket, stream_));
  return last_ = ticket;
}

Status DeviceFolder::fold(const kernels::FoldSpec& spec, const kernels::FoldArgs& args) {
  const size_t bytes = args.elementCount * sizeOf(spec.type);
  if (args.scaledSource >= 0) return invalidUsage("a step on a GPU scales none of its sources");
  if (args.sources.size() == 1 && !args.post) {
    for (void* to : args.destinations) {
      if (to != args.sources[0])
        TUTTI_TRY(accelerator_.copyOnStream(to, args.sources[0], bytes, stream_));
    }
    return {};
  }
  constexpr auto kMost = static_cast<size_t>(wire::kGpuFoldOperands);
  if (args.sources.size() > kMost || args.destinations.size() > kMost) {
    return invalidUsage("a step on a GPU has {} sources and {} destinations, of which {} are taken",
                        args.sources.size(), args.destinations.size(), kMost);
  }
  const bool divides = args.post && spec.op == ReduceOp::kAvg;
  wire::GpuFold fold{.elementCount = args.elementCount,
                     .op = spec.op,
                     .divisor = divides ? spec.rankCount : 0,
                     .sourceCount = static_cast<int32_t>(args.sources.size()),
                     .destinationCount = static_cast<int32_t>(args.destinations.size()),
                     .sources = {},
                     .destinations = {}};
  std::ranges::copy(args.sources, fold.sources);
  std::ranges::copy(args.destinations, fold.destinations);
  constexpr auto kThreads = static_cast<size_t>(kernels::cuda::kStepThreads);
  const size_t blocks = divideUp(divideUp(bytes, kVectorBytes), kThreads);
  return accelerator_.launch(
      {.kernel = kernels_[static_cast<size_t>(spec.type)],
       .blocks = static_cast<uint32_t>(std::clamp<size_t>(blocks, 1, kMaxBlocks)),
       .threads = static_cast<uint32_t>(kThreads),
       .argument = &fold},
      stream_);
}

// The word is written by the stream behind the fold, so what the fold wrote is there before it.
// Tickets wrap after 2^32 folds; of those under way there are a few.
Result<bool> DeviceFolder::isDone(Ticket ticket) {
  if (static_cast<int32_t>(seen_ - ticket) < 0) {
    const std::atomic_ref<Ticket> word(*static_cast<Ticket*>(word_->hostAddress()));
    seen_ = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen_ - ticket) < 0) {
      if (++looks_ % kLooksBetweenErrors == 0) TUTTI_TRY(accelerator_.isDone(event_).takeStatus());
      return false;
    }
  }
  std::erase_if(returns_, [this](const Return& each) {
    if (static_cast<int32_t>(seen_ - each.ticket) < 0) return false;
    std::memcpy(each.to, each.from, each.bytes);
    return true;
  });
  if (seen_ == last_) used_ = 0;
  return true;
}

}  // namespace tutti::launch
