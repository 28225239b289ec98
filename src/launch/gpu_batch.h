// From the calls of a group to kernel launches: which calls share one, in what order. Pure.
//
// Collectives run in call order, neighbours that need the same kernel in one launch, short ones
// side by side. Then the point-to-point calls: the k-th send and receive of each pair of ranks in
// the k-th launch, so that any order of sends and receives inside a group completes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "base/status.h"
#include "kernels/gpu_catalog.h"
#include "launch/call.h"
#include "launch/gpu_chooser.h"
#include "wire/gpu_program.h"
#include "wire/gpu_work.h"

namespace tutti::launch {

// What goes before a launch: a kernel of as many blocks, then a copy to each peer by an engine.
// Beside all of it the rank's own block is copied, by a kernel or an engine, where there is one to
// copy.
struct EngineWork {
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  wire::GpuTransfers gate{};
  std::array<Copy, wire::kGpuMaxRanks - 1> toPeers{};
  int32_t toPeerCount = 0;  // 0: no gate either
  wire::GpuTransfers own{};
  int32_t ownBlocks = 0;  // 0: none, or by an engine
  Copy ownByEngine;
};

// One launch of a batch: exactly one of the first four is set.
struct GpuBatch {
  static constexpr int32_t kNoRound = -1;
  const wire::GpuLaunch* collectives = nullptr;
  const wire::GpuTransfers* transfers = nullptr;
  const wire::GpuProgramLaunch* program = nullptr;
  const wire::GpuProgramTransfers* programTransfers = nullptr;
  const EngineWork* engines = nullptr;  // before the transfers, or null
  // Which of the group's calls: so many of the next collectives that have anything to do, or the
  // k-th send to and receive from each rank.
  int32_t collectiveCount = 0;
  int32_t round = kNoRound;           // k
  kernels::cuda::GpuChoice choice{};  // kernel and image
  int32_t blocks = 0;
  uint32_t sharedBytes = 0;  // of a block

  // Of the kernel.
  const void* argument() const {
    if (collectives != nullptr) return collectives;
    if (transfers != nullptr) return transfers;
    return program != nullptr ? static_cast<const void*>(program) : programTransfers;
  }
};

class GpuBatcher {
 public:
  using Limits = GpuLimits;  // equal for all calls of a communicator
  // `programs`: where some call goes as one.
  GpuBatcher(const wire::GpuView& view, const Limits& limits,
             const wire::GpuProgramView& programs = {});

  // Hands each launch to `emit`, in order. The batch is valid during the call. `number` of a
  // collective goes into its signature: pass the sequence number of the first.
  using Emit = std::function<Status(const GpuBatch&)>;
  // Fills `reach` for a buffer that all peers have mapped. Asked for calls that can gain from it.
  using Find = std::function<bool(const void* buffer, size_t bytes, wire::GpuReach& reach)>;
  // As PeerBuffers::findInWindow(). Asked for calls that copy engines could carry; may be empty.
  using Places = std::array<std::byte*, wire::kGpuMaxRanks>;
  using FindInWindow = std::function<bool(const void* buffer, size_t bytes, Places& theirs)>;
  Status build(std::span<const StreamCall> calls, const Find& find, const Emit& emit,
               const FindInWindow& findInWindow = {});

  // Asked in each long call, in the order of the calls, whether it is to save blocks; never where
  // users have a say in how calls go.
  using Saves = std::function<bool()>;
  void askWhetherToSave(Saves saves);

 private:
  Status addCollective(const Call& call, const Emit& emit);
  Status addProgram(const Call& call, const GpuChooser::Decision& decision, const Emit& emit);
  bool findReach(const Call& call, wire::GpuReach& reach) const;
  Status flush(const Emit& emit);
  Result<bool> transferRound(std::span<const StreamCall> calls, int32_t round, const Emit& emit);
  Status emitTransfers(const Emit& emit, kernels::cuda::GpuChoice choice, int32_t round);
  Status emitRound(const Emit& emit, int32_t round);
  bool isForPrograms() const { return limits_.rankCount > wire::kGpuMaxRanks; }
  Status addParts(const Call& call, const kernels::cuda::GpuRequest& request, const Emit& emit);
  Result<bool> addByEngines(const Call& call, const kernels::cuda::GpuRequest& request,
                            const Emit& emit);
  void carryByEngines(const Places& theirs);
  void copyBeside(const kernels::cuda::TransferPart& part, const kernels::cuda::GpuRequest& request,
                  uint64_t bytes);
  void addTransfer(const Call& call, const std::byte* source);
  void addProgramTransfer(const Call& call, const std::byte* source);
  void addPart(const Call& call, const kernels::cuda::TransferPart& part,
               const kernels::cuda::TransferShape& shape);
  const Limits limits_;
  GpuChooser chooser_;
  const Find* find_ = nullptr;  // these two during build()
  const FindInWindow* findInWindow_ = nullptr;
  Saves saves_;  // empty: nobody is asked
  wire::GpuLaunch launch_{};
  wire::GpuTransfers transfers_{};
  EngineWork engines_{};
  // Written once a shape, as the chooser decides, and root.
  using ProgramKey = std::tuple<Collective, DataType, ReduceOp, uint64_t, int32_t>;
  std::map<ProgramKey, std::unique_ptr<wire::GpuProgramLaunch>> programs_;
  wire::GpuProgramView programView_{};
  std::unique_ptr<wire::GpuProgramTransfers> programTransfers_;  // where isForPrograms()
  kernels::cuda::GpuChoice choice_{};                            // of the calls in launch_
  int32_t blocks_ = 0;
  int32_t nextBlock_ = 0;  // of launch_, where the next call may go
};

}  // namespace tutti::launch
