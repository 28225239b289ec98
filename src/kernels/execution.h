// Runs one rank's program over links, on the CPU: the general executor.
//
// An execution is resumable: poll() folds until a step has to wait for a message or a free slot,
// and says which with addWaits(). One thread can so drive any number of executions, of one rank or
// of several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/task.h"
#include "kernels/kernels.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "wire/link.h"

namespace tutti::kernels {

// Everything a run borrows. The program and the ports outlive the run; the buffers belong to the
// run until it is done.
struct Binding {
  const schedule::Program* program = nullptr;
  std::span<wire::LinkPort* const> incoming;  // as program->receivesFrom
  std::span<wire::LinkPort* const> outgoing;  // as program->sendsTo
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  schedule::Layout layout;
  FoldSpec fold;
  uint32_t signature = 0;  // of the call; every message carries it
  // Messages longer than a line are references to the sender's buffers (schedule::isReferable()).
  bool isDirect = false;
  std::vector<std::byte>* scratch = nullptr;  // for what is read from other processes; grows
};

class Execution {
 public:
  void start(const Binding& binding);

  // kDone once, after the last step. kInvalidUsage when a message belongs to another call.
  Result<Progress> poll();
  // The one step that holds this execution up.
  void addWaits(device::WaitSet& waits) const;

  // What the last poll() waited for; peer -1 when for nobody.
  struct Awaited {
    int32_t peer = -1;
    bool isSender = false;  // for a free slot, or for the peer to have read all, rather than for a
                            // message
    size_t step = 0;
    size_t piece = 0;
  };
  Awaited awaited() const;
  // Why the awaited link will never move, kNone while it may.
  wire::LinkFault awaitedFault() const;

 private:
  struct Extent {
    size_t offset = 0;  // elements from the start of the block's chunk
    size_t elements = 0;
  };
  struct Blockage {
    const wire::LinkPort* port = nullptr;
    int32_t peer = -1;
    bool isSender = false;  // waits for a free slot rather than for a message
  };

  Extent pieceOf(int32_t chunk) const;
  const std::byte* inputAt(int32_t chunk) const;
  std::byte* outputAt(int32_t chunk) const;
  bool isReady(const schedule::Step& step);
  bool hasMessage(int32_t link);
  bool hasFreeSlot(int32_t link);
  bool isDrained();
  struct StepData;
  Status runStep(const schedule::Step& step, size_t elements);
  Status takeSources(const schedule::Step& step, StepData& data);
  Status checkMessage(const schedule::Step& step, int32_t link, size_t bytes) const;
  Status foldAll(const schedule::Step& step, StepData& data);
  Status foldInBlocks(const schedule::Step& step, StepData& data);
  void publish(const schedule::Step& step, const StepData& data);
  void advance();

  Binding binding_;
  size_t piece_ = 0;
  size_t step_ = 0;
  Blockage blockage_;
};

}  // namespace tutti::kernels
