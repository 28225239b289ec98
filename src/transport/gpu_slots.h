// The long slots of a link between GPUs of one host: memory of the receiver's GPU, which the
// sender's GPU has mapped and writes to. What cannot be shared so is no error: the link's messages
// lie in its slots in the host's memory then.
#pragma once

#include <memory>

#include "bootstrap/peer_info.h"
#include "device/accelerator.h"
#include "transport/offer.h"
#include "transport/transport.h"

namespace tutti::transport {

// The receiver's half.
struct GpuSlotMemory {
  std::unique_ptr<device::DeviceMemory> memory;  // null: there is none
  UniqueFd handle;                               // from which the sender maps it
};
// Of a link that is to have some: as many and as long as its others. After a line in the log: none.
GpuSlotMemory makeGpuSlots(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
                           const LinkOptions& options);
// Writes the token to the memory, by which the sender knows it. False: the GPU cannot.
bool markGpuSlots(device::Accelerator& gpu, const device::DeviceMemory& memory, const Token& token);

// The sender's half: maps so many bytes and tries them with a copy each way, since peer access can
// be advertised and broken. Says in the log which way the link goes; null: through the host.
struct GpuSlotOffer {
  UniqueFd handle;
  Token token{};
  uint64_t bytes = 0;
};
std::unique_ptr<device::DeviceMemory> mapGpuSlots(const bootstrap::PeerInfo& sender,
                                                  const bootstrap::PeerInfo& receiver,
                                                  const LinkOptions& options, GpuSlotOffer offer);

// The view of a link whose slots in a GPU's memory are these; null: none.
wire::LinkView viewWithGpuSlots(void* link, const wire::LinkGeometry& geometry,
                                const device::DeviceMemory* slots);

}  // namespace tutti::transport
