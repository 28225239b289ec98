// What a step does with its sources: one copy or fold, by this thread or with a crew, in place or
// by way of blocks that come from other processes.
#include <algorithm>
#include <span>

#include "base/copy_memory.h"
#include "base/units.h"
#include "kernels/copy_bytes.h"
#include "kernels/execution.h"
#include "kernels/remote_memory.h"

namespace tutti::kernels {
namespace {

// Long enough that the system call's 0.7 us do not show, short enough that a few of them stay in an
// L2 cache.
constexpr size_t kBlockBytes = 64_KiB;

// Its content comes with the message, or is in place already.
bool bringsItself(MessageForm form) {
  switch (form) {
    case MessageForm::kPayload:
    case MessageForm::kPayloadAnnouncing:
    case MessageForm::kPosted:
    case MessageForm::kPlaced: return true;
    case MessageForm::kReference:
    case MessageForm::kReferenceAnnouncing:
    case MessageForm::kShared: return false;
  }
  return false;
}

}  // namespace

// Of its destinations, outputs first. What lies in a slot is read again, better from a cache, and
// so is what messages name; but not what is put in place at the peer's.
size_t Execution::streamedCount(const BoundStep& step, const StepData& data) const {
  if (!binding_.streams || !step.isFinal) return 0;
  const std::span<const MessageForm> forms =
      std::span(binding_.scratch->forms).first(data.hasForms ? step.linkCount : 0);
  const bool namesAny =
      data.hasForms ? !std::ranges::all_of(forms, bringsItself) : data.refers && step.linkCount > 0;
  if (namesAny && !isLocalCopy(step)) return 0;
  const bool isPlaced =
      step.linkCount == forms.size() &&
      std::ranges::all_of(forms, [](MessageForm form) { return form == MessageForm::kPlaced; });
  return isPlaced ? data.localCount : step.outputCount;
}

Status Execution::compute(const BoundStep& step, const StepData& data) {
  if (data.localCount == 0) return {};
  return binding_.crew != nullptr ? computeTogether(step, data)
                                  : computeWith(*binding_.scratch, step, data);
}

// What the peers read of the step's buffers stays as it is while the helpers are at work: nothing
// is published before all are done.
Status Execution::computeTogether(const BoundStep& step, const StepData& data) {
  const StepScratch& all = *binding_.scratch;
  const size_t elementBytes = binding_.program->elementBytes();
  return binding_.crew->share(
      data.elements, elementBytes, [&](int32_t seat, size_t first, size_t elements) {
        StepScratch& own = binding_.crew->scratch(seat);
        own.reserve(binding_.program->operandLimit());
        const size_t offset = first * elementBytes;
        for (size_t i = 0; i < step.sourceCount; ++i) {
          own.sources[i] = static_cast<const std::byte*>(all.sources[i]) + offset;
          if (data.remoteCount == 0) continue;
          own.remote[i] = all.remote[i] == nullptr ? nullptr : all.remote[i] + offset;
        }
        for (size_t i = 0; i < data.localCount; ++i)
          own.destinations[i] = static_cast<std::byte*>(all.destinations[i]) + offset;
        StepData part = data;
        part.elements = elements;
        part.bytes = elements * elementBytes;
        return computeWith(own, step, part);
      });
}

Status Execution::computeWith(StepScratch& scratch, const BoundStep& step,
                              const StepData& data) const {
  if (data.remoteCount > 0) return computeInBlocks(scratch, step, data);
  computeHere(scratch, step, data);
  return {};
}

void Execution::computeHere(const StepScratch& scratch, const BoundStep& step,
                            const StepData& data) const {
  if (data.localCount == 1 && step.isCopy && scratch.destinations[0] == scratch.sources[0]) return;
  const size_t streamed = streamedCount(step, data);
  if (step.isCopy && streamed == 0) {
    for (size_t i = 0; i < data.localCount; ++i)
      copyBytes(static_cast<std::byte*>(scratch.destinations[i]),
                static_cast<const std::byte*>(scratch.sources[0]), data.bytes);
    return;
  }
  const FoldArgs args{.sources = {scratch.sources.data(), step.sourceCount},
                      .destinations = {scratch.destinations.data(), data.localCount},
                      .elementCount = data.elements,
                      .scaledSource = step.scaledSource,
                      .post = step.post,
                      .streamedCount = streamed};
  if (step.scaledSource < 0) {
    fold(binding_.program->fold(), args);
    return;
  }
  FoldSpec spec = binding_.program->fold();
  spec.preScale = binding_.preScale;
  fold(spec, args);
}

// Sources of other processes pass through scratch memory that stays in the cache; a plain copy goes
// straight to its place, where the kernel is as fast as elsewhere.
Status Execution::computeInBlocks(StepScratch& scratch, const BoundStep& step,
                                  const StepData& data) const {
  const size_t elementBytes = binding_.program->elementBytes();
  const auto sources = binding_.program->sources(step);
  const size_t streamed = streamedCount(step, data);
  const bool isStraight = step.isCopy && data.localCount == 1 && streamed == 0;
  if (isStraight && !looksOverlapping(static_cast<const std::byte*>(scratch.destinations[0]),
                                      scratch.remote[0])) {
    return readProcess(sources[0].port->senderProcess, scratch.remote[0], scratch.destinations[0],
                       data.bytes);
  }
  const size_t blockElements = std::min(data.elements, kBlockBytes / elementBytes);
  const size_t blockBytes = blockElements * elementBytes;
  const size_t roomBytes = blockBytes + kAliasBytes;
  if (scratch.blocks.size() < data.remoteCount * roomBytes)
    scratch.blocks.resize(data.remoteCount * roomBytes);
  FoldSpec spec = binding_.program->fold();
  spec.preScale = binding_.preScale;
  for (size_t done = 0; done < data.elements; done += blockElements) {
    const size_t elements = std::min(blockElements, data.elements - done);
    std::byte* room = scratch.blocks.data();
    for (size_t i = 0; i < sources.size(); ++i) {
      if (scratch.remote[i] == nullptr) {
        scratch.blockSources[i] =
            static_cast<const std::byte*>(scratch.sources[i]) + done * elementBytes;
        continue;
      }
      const std::byte* from = scratch.remote[i] + done * elementBytes;
      std::byte* block = placeAlike(room, from);
      TUTTI_TRY(readProcess(sources[i].port->senderProcess, from, block, elements * elementBytes));
      scratch.blockSources[i] = block;
      room += roomBytes;
    }
    for (size_t i = 0; i < data.localCount; ++i) {
      scratch.blockDestinations[i] =
          static_cast<std::byte*>(scratch.destinations[i]) + done * elementBytes;
    }
    fold(spec, {.sources = {scratch.blockSources.data(), sources.size()},
                .destinations = {scratch.blockDestinations.data(), data.localCount},
                .elementCount = elements,
                .scaledSource = step.scaledSource,
                .post = step.post,
                .streamedCount = streamed});
  }
  return {};
}

}  // namespace tutti::kernels
