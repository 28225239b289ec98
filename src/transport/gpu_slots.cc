#include "transport/gpu_slots.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tutti::transport {
namespace {

bool isFar(const LinkOptions& options, int32_t peer) {
  return options.gpu != nullptr &&
         std::ranges::find(options.gpu->farPeers, peer) != options.gpu->farPeers.end();
}

// 0: the link is to have none.
size_t slotBytes(const LinkOptions& options, int32_t peer) {
  const wire::LinkGeometry& geometry = options.geometry;
  const bool hasSome = options.gpu != nullptr && options.gpu->reachesPeers &&
                       !isFar(options, peer) && geometry.shortCount > 0;
  return hasSome ? size_t{geometry.slotCount} * geometry.slotBytes : 0;
}

void tellHost(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
              const Status& why) {
  log::info(log::Subsystem::kP2p, "link of GPU ranks {} -> {}: through the host's memory: {}",
            sender.rank, receiver.rank, why.message());
}

Status tryMapping(device::Accelerator& gpu, const device::DeviceMemory& memory,
                  const Token& token) {
  Token seen{};
  TUTTI_TRY(gpu.copy(seen.data(), memory.address(), seen.size()));
  if (seen != token) return Status(Code::kSystemError, "a copy from there brings something else");
  Token written = token;
  for (std::byte& each : written) each = ~each;
  TUTTI_TRY(gpu.copy(memory.address(), written.data(), written.size()));
  TUTTI_TRY(gpu.copy(seen.data(), memory.address(), seen.size()));
  if (seen == written) return {};
  return Status(Code::kSystemError, "a copy to there leaves something else");
}

Result<std::unique_ptr<device::DeviceMemory>> mapAndTry(device::Accelerator& gpu,
                                                        GpuSlotOffer offer, size_t wantedBytes) {
  if (offer.bytes < wantedBytes)
    return Status(Code::kRemoteError,
                  fmt::format("{} bytes are offered of {}", offer.bytes, wantedBytes));
  TUTTI_TRY_ASSIGN(auto memory, gpu.importMemory(std::move(offer.handle), offer.bytes));
  TUTTI_TRY(tryMapping(gpu, *memory, offer.token));
  return memory;
}

}  // namespace

GpuSlotMemory makeGpuSlots(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
                           const LinkOptions& options) {
  const size_t bytes = slotBytes(options, sender.rank);
  if (bytes == 0) return {};
  GpuSlotMemory slots;
  Result<std::unique_ptr<device::DeviceMemory>> memory = options.gpu->gpu->makeMemory(bytes);
  if (!memory.ok()) {
    tellHost(sender, receiver, memory.status());
    return {};
  }
  slots.memory = std::move(memory).value();
  Result<UniqueFd> handle = slots.memory->exportHandle();
  if (!handle.ok()) {
    tellHost(sender, receiver, handle.status());
    return {};
  }
  slots.handle = std::move(handle).value();
  return slots;
}

bool markGpuSlots(device::Accelerator& gpu, const device::DeviceMemory& memory,
                  const Token& token) {
  return gpu.copy(memory.address(), token.data(), token.size()).ok();
}

std::unique_ptr<device::DeviceMemory> mapGpuSlots(const bootstrap::PeerInfo& sender,
                                                  const bootstrap::PeerInfo& receiver,
                                                  const LinkOptions& options, GpuSlotOffer offer) {
  if (isFar(options, receiver.rank)) {
    log::info(log::Subsystem::kP2p,
              "link of GPU ranks {} -> {}: through the host's memory: their GPUs are farther apart "
              "than NCCL_P2P_LEVEL allows",
              sender.rank, receiver.rank);
  }
  const size_t bytes = slotBytes(options, receiver.rank);
  if (bytes == 0 || offer.bytes == 0) return nullptr;
  auto memory = mapAndTry(*options.gpu->gpu, std::move(offer), bytes);
  if (!memory.ok()) {
    tellHost(sender, receiver, memory.status());
    return nullptr;
  }
  log::info(log::Subsystem::kP2p, "link of GPU ranks {} -> {}: from GPU to GPU", sender.rank,
            receiver.rank);
  return std::move(memory).value();
}

wire::LinkView viewWithGpuSlots(void* link, const wire::LinkGeometry& geometry,
                                const device::DeviceMemory* slots) {
  wire::LinkView view = wire::viewLink(link, geometry);
  if (slots != nullptr) view.gpuSlots = static_cast<std::byte*>(slots->address());
  return view;
}

}  // namespace tutti::transport
