// What one run of `tutti perf` measures, and how the words of its command line are read. Pure: no
// command-line parser, no library, so tests can take it alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "wire/types.h"

namespace tutti::tools {

// What can be measured. kSendRecv: every rank sends to the next and receives from the previous.
enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
};

std::string_view name(Operation operation);  // "all_reduce"
bool isReduction(Operation operation);
bool hasRoot(Operation operation);

// How the ranks' times become the one that is printed; the numbers are those of -a.
enum class TimeChoice : uint8_t { kRank0 = 0, kAverage = 1, kMinimum = 2, kMaximum = 3 };

// Where waiting happens inside the timed part; the numbers are those of -z.
enum class Blocking : uint8_t { kNone = 0, kEachCall = 1, kNoBarrier = 2, kEachIteration = 3 };

// How buffers are made known to the library; the numbers are those of -R.
enum class Registration : uint8_t { kNone = 0, kRegister = 1, kWindow = 2 };

// How the calls of GPU ranks go.
enum class GpuPath : uint8_t { kUnknown, kDirect, kThroughHost };

std::string_view name(GpuPath path);  // "" when unknown

inline constexpr int kAllRoots = -1;

struct PerfOptions {
  Operation operation = Operation::kAllReduce;
  int processes = 0;  // 0: not asked for: as many as the launcher started, or 2
  int threads = 1;    // ranks in each process

  size_t minBytes = 32_MiB;
  size_t maxBytes = 32_MiB;
  size_t stepBytes = 1_MiB;  // used while stepFactor is 0
  int stepFactor = 0;

  std::vector<DataType> types = {DataType::kFloat32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  int root = 0;  // or kAllRoots

  int iterations = 0;  // 0: as many as fill minSeconds
  double minSeconds = 0.1;
  int warmups = 5;
  int aggregate = 1;  // calls in one group
  int cycles = 1;     // 0: until interrupted
  int checks = 1;     // checked runs a row; 0: none
  Blocking blocking = Blocking::kNone;
  TimeChoice timeChoice = TimeChoice::kAverage;
  Registration registration = Registration::kNone;
  size_t misalignElements = 0;
  bool hostStream = false;
  static constexpr int kNoGpus = -1;
  static constexpr int kAnyGpus = 0;
  int gpus = kAnyGpus;    // rank r uses GPU r modulo this; kAnyGpus: all there are, if any
  int graphLaunches = 0;  // 0: calls are timed as they are; else this many replays of a graph
  bool pin = true;        // only where every rank gets a core of its own
  uint64_t seed = 1;

  std::string peerLibrary = {};  // another libnccl.so.2, timed in turn with this one
  std::optional<Registration> peerRegistration = {};  // of its buffers; none: as this one's

  int timeoutSeconds = 0;                   // 0: none
  std::optional<double> minBandwidth = {};  // GB/s of bus bandwidth
  std::string jsonPath = {};                // "-": standard output
  std::string csvPath = {};
  std::string htmlPath = {};
};

// nccl-tests' names ("half", "f8e4m3") and the usual others ("fp16", "bf16"); "all": every one.
// Several may be joined by commas.
Result<std::vector<DataType>> parseTypes(std::string_view text);
Result<std::vector<ReduceOp>> parseOps(std::string_view text);
Result<int> parseRoot(std::string_view text);  // a rank or "all"
Result<Operation> parseOperation(std::string_view text);

// nccl-tests' name of a type or reduction, as printed in the table.
std::string_view columnName(DataType type);
std::string_view columnName(ReduceOp op);

// The sizes to run, smallest first. kInvalidArgument when the range is empty or has over 100,000.
Result<std::vector<size_t>> listSizes(const PerfOptions& options);

// What no single option can know: ranges against each other and against the rank count.
Status checkOptions(const PerfOptions& options, int rankCount);

}  // namespace tutti::tools
