#include "launch/copy_engines.h"

#include <span>

namespace tutti::launch {

CopyEngines::~CopyEngines() {
  for (device::Event* event : {begun_, copied_}) accelerator_.destroyEvent(event);
  accelerator_.destroyStream(beside_);
}

Status CopyEngines::open() {
  for (device::Event** event : {&begun_, &copied_}) {
    if (*event != nullptr) continue;
    TUTTI_TRY_ASSIGN(*event, accelerator_.createEvent());
  }
  if (beside_ != nullptr) return {};
  TUTTI_TRY_ASSIGN(beside_, accelerator_.createStream());
  return {};
}

Status CopyEngines::copy(const EngineWork::Copy& copy, void* stream) {
  if (copy.bytes == 0) return {};
  return accelerator_.copyOnStream(copy.to, copy.from, copy.bytes, stream);
}

Status CopyEngines::launch(const device::KernelLaunch& last, const EngineWork& work, void* stream) {
  const bool hasOwn = work.ownBlocks != 0 || work.ownByEngine.bytes != 0;
  device::KernelLaunch other = last;
  if (hasOwn) TUTTI_TRY(accelerator_.record(begun_, stream));
  if (work.toPeerCount > 0) {
    other.argument = &work.gate;
    TUTTI_TRY(accelerator_.launch(other, stream));
    for (const EngineWork::Copy& one :
         std::span(work.toPeers).first(static_cast<size_t>(work.toPeerCount)))
      TUTTI_TRY(copy(one, stream));
  }
  if (hasOwn) {
    TUTTI_TRY(accelerator_.wait(beside_, begun_));
    other.argument = &work.own;
    other.blocks = static_cast<uint32_t>(work.ownBlocks);
    if (work.ownBlocks != 0) TUTTI_TRY(accelerator_.launch(other, beside_));
    TUTTI_TRY(copy(work.ownByEngine, beside_));
    TUTTI_TRY(accelerator_.record(copied_, beside_));
  }
  TUTTI_TRY(accelerator_.launch(last, stream));
  return hasOwn ? accelerator_.wait(stream, copied_) : Status();
}

}  // namespace tutti::launch
