// Memory for one step at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::kernels {

// How one message of a step goes out.
enum class MessageForm : uint8_t {
  kPayload,
  kPayloadAnnouncing,
  kReference,
  kReferenceAnnouncing,
  kShared,
  kPosted,  // to several, by way of the outbox
  kPlaced
};

// Shared by executions that are driven in turn. Grows, so that in the steady state nothing is
// allocated.
struct StepScratch {
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  std::vector<const std::byte*> remote;  // null, or what to read from the source's process
  std::vector<const void*> blockSources;
  std::vector<void*> blockDestinations;
  std::vector<std::byte> blocks;   // what was read from other processes
  std::vector<MessageForm> forms;  // by link of the step, where they differ

  void reserve(size_t operands) {
    if (sources.size() >= operands) return;
    destinations.resize(operands);
    remote.resize(operands);
    blockSources.resize(operands);
    blockDestinations.resize(operands);
    forms.resize(operands);
    sources.resize(operands);  // last: there was memory for all
  }
};

}  // namespace tutti::kernels
