// Which kernel runs a call, and in what shape: a pure function of the call and the communicator, so
// that all ranks decide alike. Nothing here needs CUDA.
//
// Each kernel executes a schedule of src/schedule that was proved: `algorithm` names it, and
// docs/ALGORITHMS.md draws it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "wire/gpu_work.h"
#include "wire/types.h"

namespace tutti::kernels::cuda {

struct GpuRequest {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  // the API's count argument, in elements
  int32_t rankCount = 1;
  int32_t ranksPerDevice = 1;               // the most that any GPU of the communicator holds
  int32_t multiprocessors = 108;            // the fewest that any of its GPUs has; an A100's
  int32_t maxBlocks = wire::kGpuMaxBlocks;  // settings and maxCTAs; equal on all ranks
  int32_t minBlocks = 1;                    // the same of minCTAs; of those that may be, and while
                                            // each has something to do
  bool prefersEngines = false;              // to its thread blocks, at any length
  bool keepsLines = false;                  // device::Accelerator::keepsLinesTo() all of all ranks
  bool savesBlocks = false;                 // so that others have multiprocessors meanwhile
  bool hasBulk = false;                     // all ranks' GPUs have what bulk.cuh needs
  int64_t lineBytes = -1;                   // up to here by lines; -1: as measured (catalog.cc)
  int64_t stageBytes = -1;                  // beyond here by lines in two stages; -1: the same
  int64_t wideBytes = -1;                   // up to here by wide lines, before all others, where
                                            // keepsLines; -1: the same
  int64_t transferBytes = -1;               // from here on as transfers; -1: the same
};

// Blocks that wait for other ranks' all have to be on their GPU at once, so there are never more
// than it can hold: so many of these multiprocessors are theirs, a few are left to others' kernels.
constexpr int32_t waitingMultiprocessors(int32_t multiprocessors) {
  constexpr int32_t kOthers = 4;
  return std::max(multiprocessors - kOthers, 1);
}
// Ranks that share a GPU leave room for a second communicator of theirs, if they can.
constexpr int32_t sharersOf(int32_t ranksPerDevice) {
  return ranksPerDevice > 1 ? 2 * ranksPerDevice : 1;
}
// Blocks of one rank, where a multiprocessor holds so many.
constexpr int32_t residentBlocks(const GpuRequest& request, int32_t perMultiprocessor) {
  return perMultiprocessor * waitingMultiprocessors(request.multiprocessors) /
         sharersOf(request.ranksPerDevice);
}
// Blocks of 256 threads that a multiprocessor holds, by their kernels' registers: those that only
// send and receive, and those that fold or have a lane's part.
inline constexpr int32_t kMovingBlocks = 3;
inline constexpr int32_t kFoldingBlocks = 2;
// Of a group: one to and one from each peer.
constexpr int32_t transfersAtOnce(int32_t rankCount) { return 2 * std::max(1, rankCount - 1); }

inline constexpr int32_t kSavingBlocks = 32;  // most of a launch, where GpuRequest::savesBlocks
inline constexpr int32_t kCollectiveThreads = 512;  // of a block of a collective

struct GpuChoice {
  std::string_view algorithm;  // schedule's name: "oneshot", "twoshot", "direct", "pairwise"
  std::string_view protocol;   // "lines", "wide lines" or "slots"
  const char* kernel;          // its name in the image
  int32_t image;               // which image holds it
  int32_t threads;             // of a block
  // For the call:
  int32_t blocks;
  uint32_t chunkBytes;
  wire::GpuAlgorithm shape;
  // The kernel waits for the stream by itself, so it may be put on the GPU before its turn.
  bool startsEarly;
  bool isApart = false;  // the blocks are lanes (kernels/cuda/apart.cuh): gridOf()
  bool isBulk = false;   // so many lanes as copy engines of multiprocessors have room for
};

// Empty where no kernel fits: more than kGpuMaxRanks ranks.
std::optional<GpuChoice> choose(const GpuRequest& request);

// A launch of calls that have so many blocks at most. By bulk (kernels/cuda/bulk.cuh): where the
// choice is, and mayGoByBulk() holds for all of them; else such a call takes half as many blocks
// again.
struct GpuGrid {
  int32_t blocks;
  int32_t threads;       // of a block
  uint32_t sharedBytes;  // the same
};
GpuGrid gridOf(const GpuChoice& choice, int32_t blocks, int32_t rankCount, bool isBulk);
// Whether long calls are shaped for that.
bool goesInBulk(const GpuRequest& request);
// Of any launch of the kernel among so many ranks, where GpuRequest::hasBulk.
uint32_t mostSharedBytes(std::string_view kernel, int32_t rankCount);
// A matter of this rank alone.
bool mayGoByBulk(const GpuRequest& request, const void* input, const void* output);

// Blocks that calls of a launch may take side by side; 0 where they follow each other. The same for
// all calls that share a launch.
int32_t blocksBeside(const GpuChoice& choice, const GpuRequest& request);

// Whether a launch of so many blocks, of a kernel that can, may start before its turn.
bool startsEarly(int32_t blocks, int32_t ranksPerDevice);

// The kernel that a rank which shares its output runs instead (kernels/cuda/sharing.cuh): where all
// do, it writes to peers' outputs themselves. Ranks that run one and ranks that run the other may
// meet. Empty where that gains nothing.
std::optional<GpuChoice> choiceThatShares(const GpuRequest& request, const GpuChoice& choice);

// Whether a collective of two ranks goes as a send, a receive and a copy: each in blocks, thus on
// multiprocessors, of its own, and with longer messages. The kernel is transferKernelOf() it.
bool goesAsTransfers(const GpuRequest& request);

// What such a call, or one that goesByEngines(), is made of on one rank.
struct TransferPart {
  bool isSend = false;
  bool folds = false;      // a receive: `source`, the own input, with what comes, to the buffer
  bool isInPlace = false;  // what comes goes where the send reads
  std::byte* buffer = nullptr;
  const std::byte* source = nullptr;  // of a local copy, too
  int32_t peer = 0;                   // the own rank: a local copy
};
struct TransferParts {
  std::array<TransferPart, 2 * (wire::kGpuMaxRanks - 1) + 1> parts;
  int32_t count = 0;
};
struct CallPlace {
  const void* input = nullptr;
  void* output = nullptr;
  int32_t self = 0;
  int32_t root = 0;  // of a call that has one
};
TransferParts transferParts(const GpuRequest& request, const CallPlace& place);

// Sends and receives: the shape of one transfer of so many bytes. The kernel is transferKernel().
struct TransferShape {
  int32_t blocks;
  wire::GpuMessages messages;
  bool tellsPlace;  // the receiver first tells whether the sender can write to its buffer
  wire::GpuPull pull;
};
// Of a collective that goesAsTransfers(), too.
TransferShape shapeTransfer(uint64_t bytes, const GpuRequest& request);
// Whether a collective goes as transfers that copy engines carry (wire::GpuEngine), where the
// output is in a window of all ranks; and their shape.
bool goesByEngines(const GpuRequest& request);
TransferShape engineShape(const GpuRequest& request);
GpuChoice transferKernel();
GpuChoice transferKernelOf(const GpuRequest& request);
// What a kernel takes as its parameter: GpuTransfers, else GpuLaunch.
bool takesTransfers(std::string_view kernel);

// Fills what the choice decides and the call says; the caller adds pointers, root, scalar.
wire::GpuCall makeCall(const GpuRequest& request, const GpuChoice& choice);

// ---- images
// --------------------------------------------------------------------------------------

// The first images hold the reductions of a type, or of two integers of a width, which differ in
// the sign alone; kMoveImage what only moves bytes. In the order of cmake/TuttiGpuKernels.cmake.
inline constexpr int32_t kMoveImage = kDataTypeCount - 3;
constexpr int32_t foldImage(DataType type) {
  const auto number = static_cast<int32_t>(type);
  return number <= static_cast<int32_t>(DataType::kUint64) ? number / 2 : number - 3;
}
// The same again of the general executor (gpu_program.h), of which only some communicators load
// any.
inline constexpr int32_t kProgramImages = kMoveImage + 1;
inline constexpr int32_t kImageCount = 2 * kProgramImages;

// The kernels of an image that a communicator of so many ranks may run: all names that choose(),
// transferKernel() and gpu_program.h give. Null at the end where there are fewer.
using KernelNames = std::array<const char*, 6>;
KernelNames kernelNames(int32_t image, int32_t rankCount);

// A fatbin for cuModuleLoadData; empty in a build without a CUDA compiler.
std::span<const unsigned char> image(int32_t which);
// Another: what folds for the host's executor (kernels/gpu_folder.h), one kernel a type, and what
// runs rounds of calls that it carries out (wire/gpu_staging.h), and what notes when a GPU comes to
// it (wire/gpu_stamp.h).
std::span<const unsigned char> stepImage();
inline constexpr int32_t kStepThreads = 256;  // of a block, at most
const char* stepKernel(DataType type);
inline constexpr const char* kStageKernel = "tuttiStage";
inline constexpr uint32_t kStageThreads = 512;  // of a block
inline constexpr const char* kStampKernel = "tuttiStamp";
inline bool hasImages() { return !image(kMoveImage).empty(); }
// What they were compiled for, "80 90", the last one also as PTX for GPUs to come; empty without.
std::string_view architectures();
// Whether such images run on a GPU of this compute capability (90: 9.0).
bool doRunOn(std::string_view architectures, int32_t capability);
// Whether what runs there was compiled with what bulk.cuh needs, and a block may have as much
// shared memory.
bool canBulk(std::string_view architectures, int32_t capability, uint32_t sharedBytesPerBlock);

}  // namespace tutti::kernels::cuda
