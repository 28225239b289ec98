// CopyEngines: transfers that an engine carries, with the work around it.
//
//   the user's stream   | kernel: names places | copies | kernel: tells the peers, hears of theirs
//   | a stream of its own |    copy of the rank's own block    |
#pragma once

#include "base/status.h"
#include "device/accelerator.h"
#include "launch/gpu_batch.h"

namespace tutti::launch {

// Serialised by its owner.
class CopyEngines {
 public:
  explicit CopyEngines(device::Accelerator& accelerator) : accelerator_(accelerator) {}
  ~CopyEngines();
  CopyEngines(const CopyEngines&) = delete;
  CopyEngines& operator=(const CopyEngines&) = delete;

  // Makes what launch() needs. May be called again.
  Status open();
  // REQUIRES: open() went well. Allocates nothing and waits for nothing; part of a graph where the
  // stream is captured.
  Status launch(const device::KernelLaunch& last, const EngineWork& work, void* stream);

 private:
  Status copy(const EngineWork::Copy& copy, void* stream);

  device::Accelerator& accelerator_;
  void* beside_ = nullptr;  // a stream
  device::Event* begun_ = nullptr;
  device::Event* copied_ = nullptr;
};

}  // namespace tutti::launch
