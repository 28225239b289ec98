// Plan: a call turned into what one rank has to do. Pure: the same call on the same communicator
// gives the same plan, on every rank the matching one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/processor.h"
#include "base/status.h"
#include "plan/tuner.h"
#include "schedule/layout.h"
#include "schedule/placements.h"
#include "schedule/schedule.h"
#include "wire/link.h"
#include "wire/types.h"

namespace tutti::plan {

struct Tuning;  // tuning.h

// The network that reduces between a communicator's hosts, where all ranks have one. The same on
// all ranks.
struct NetworkReduction {
  std::string name{};
  std::string obstacle{};             // why there is none, where somebody asked for one
  int32_t headCount = 0;              // groups, each with a rank of every host; 0: there is none
  uint64_t supported = 0;             // a bit for each type and operation; bitOf()
  bool gathers = false;               // all-gather
  bool scatters = false;              // reduce-scatter, of what it reduces
  std::vector<int32_t> hostStarts{};  // each host's first place in the order of ranks, ascending

  // What the network is to do for a call's operation: an average is a sum.
  static ReduceOp operationFor(ReduceOp op);
  static uint64_t bitOf(DataType type, ReduceOp op);
  bool reduces(DataType type, ReduceOp op) const;
};

// Whether messages may take a detour over a rank that neither has nor wants them, the one beside
// the network adapter. In the order of the settings' numbers.
enum class Relays : uint8_t { kNever, kByPrice, kAlways };

// Whether ranks work on later pieces while messages cross the network (TUTTI_NET_OVERLAP).
enum class Overlap : uint8_t { kNever, kWithCpus, kAlways };
constexpr bool doOverlap(Overlap wanted, bool haveTwoCpusEach) {
  return wanted == Overlap::kAlways || (wanted == Overlap::kWithCpus && haveTwoCpusEach);
}

// The links that a communicator makes when NCCL_BUFFSIZE, the payload of a whole link, is this.
wire::LinkGeometry linkGeometry(size_t bufferBytes);
// Where so many ranks are on one host, each of which may have a link to all others.
wire::LinkGeometry amongRanks(const wire::LinkGeometry& geometry, size_t rankCount);
// Where ranks are on several hosts: longer messages, each of which costs a trip between them.
wire::LinkGeometry acrossHosts(const wire::LinkGeometry& geometry);

// What decides a plan. For send and receive `peer` is the other rank; for rooted collectives it is
// the root.
struct CallShape {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Rank peer{0};
  uint64_t count = 0;    // elements, as the API call counts them: a block
  bool isOnGpu = false;  // its buffers and links are a GPU's; planned like any
  bool operator==(const CallShape&) const = default;
};

// What all ranks of a communicator agreed on.
struct Agreement {
  Rank rank{0};
  int32_t rankCount = 1;
  wire::LinkGeometry geometry;
  std::string algorithms;  // NCCL_ALGO as given; empty: choose
  // Every rank may read every other's memory as its own (threads of one process), so messages may
  // be references.
  bool readsPeers = false;
  // Not that, but every rank may read every other's with process_vm_readv: a sender may refer.
  bool readsByKernel = false;
  bool readsFastByKernel = false;  // what one rank moves goes so without a trial
  // All ranks are of one host.
  bool isOneHost = false;
  // Where they are not, the host of each, by number.
  std::vector<int32_t> hostOf = {};
  // Hosts that hold as many ranks each, a host's next to each other in the order below; else 1.
  int32_t evenHostCount() const;
  // On the host where it is most, at least 1. Where ranks outnumber CPUs, each wait is a turn of
  // the scheduler.
  double ranksPerCpu = 1;
  bool isCrowded() const { return ranksPerCpu > 1; }
  // Of all ranks, where they are of one.
  ProcessorKind processor = ProcessorKind::kOther;
  // Ranks post messages for several in a memory that all map (kernels/outbox.h). Where ranks have a
  // CPU each that has not been measured; more ranks would map more than they gain.
  bool hasOutbox() const {
    constexpr int32_t kMostRanks = 64;
    return isCrowded() && isOneHost && !readsPeers && rankCount > 2 && rankCount <= kMostRanks;
  }
  // Ranks by place: neighbours in it are near each other (graph/places.h). Empty: 0, 1, 2, ...
  std::vector<Rank> order = {};
  NetworkReduction inNetwork = {};
  Relays relays = Relays::kByPrice;
  // What waits for messages of other hosts lags behind (schedule::ScheduleOptions::lagSlots).
  bool overlapsNetwork = false;
  // Of each rank, by what names its adapters: equal where they are the same. Empty: not known.
  std::vector<uint64_t> railOf = {};
  std::shared_ptr<const Tuning> tuning = {};  // prices measured on this machine, the same on all
                                              // ranks, shared with the parent's; null: built-in
  std::shared_ptr<Tuner> tuner = {};  // a plug-in, shared by whoever plans for this communicator;
                                      // null: none
};

struct Plan {
  std::string_view algorithm;
  std::shared_ptr<const schedule::Program> program;  // shared by all plans of one algorithm and
                                                     // root
  schedule::Layout layout;
  uint32_t signature = 0;  // without the call's sequence number
  bool isDirect = false;   // messages longer than a line are references (schedule/references.h)
  bool mayRefer = false;   // they may be; each sender decides, call by call
  std::optional<ReduceOp> networkOp{};  // what a network does with this rank's messages to it
  std::string reason;  // why this algorithm; for `NCCL_DEBUG=INFO` and `tutti explain`
};

// Beyond so many ranks the proof of mapped steps would take long, and not all are of one host.
inline constexpr int32_t kMostRanksMapped = 64;

// What a rank's steps may do with memory that ranks map of each other; all empty: nothing.
struct MappedSteps {
  std::vector<uint8_t> referable;   // schedule::referableSteps()
  std::vector<uint8_t> answered;    // schedule::answeredSteps()
  schedule::Placements placements;  // schedule::placements()
};

// Programs, and what of them goes between hosts, by algorithm and root, so that plans which differ
// in size only share theirs.
class ProgramCache;

class Planner {
 public:
  explicit Planner(Agreement agreement);
  ~Planner();

  // kInvalidUsage when NCCL_ALGO leaves no algorithm for the collective.
  Result<Plan> make(const CallShape& shape);
  // Another algorithm for the shape, or the same by longer references, to be tried where messages
  // can be references, which make it the better one for some buffers; none where there is none that
  // folds alike. Only for calls of which every rank learns whether all agree
  // (kernels::Execution::isAgreed). The same on all ranks.
  Result<std::optional<Plan>> makeOther(const CallShape& shape, const Plan& plan);
  // Of a plan that make() gave for the shape. Takes milliseconds where ranks are many, so ask once.
  MappedSteps mappedSteps(const CallShape& shape, const Plan& plan, bool inPlace) const;

  const Agreement& agreement() const { return agreement_; }

 private:
  // kLongReads: nothing is copied into slots, so pieces may be longer than one.
  enum class Way : uint8_t { kOwn, kOther, kLongReads };
  Plan bind(const CallShape& shape, std::string_view algorithmName, Way way = Way::kOwn);

  Agreement agreement_;
  std::unique_ptr<ProgramCache> programs_;
};

// The bytes of a call's whole vector: all ranks' blocks together where there is one a rank.
size_t vectorBytes(const CallShape& shape, int32_t rankCount);

// The bytes of this rank's buffers; 0 where its call has none.
struct BufferBytes {
  size_t input = 0;
  size_t output = 0;
};
BufferBytes bufferBytes(const CallShape& shape, const Agreement& agreement);

// The name of the algorithm for a call, and why: the cheapest by the prices (of the agreement's
// tuning where it has them, else of device_constants.h) that NCCL_ALGO allows, unless the tuner
// says another.
struct Choice {
  std::string_view algorithm;
  std::string reason;
};
Result<Choice> choose(const CallShape& shape, const Agreement& agreement);

// The sizes of the whole vector, in powers of two from 8 bytes to 4 GiB, from which another
// algorithm is taken; the first is for all shorter ones too. Empty when NCCL_ALGO leaves none.
struct Switch {
  uint64_t bytes = 0;
  std::string_view algorithm;
};
std::vector<Switch> switchesOf(Collective collective, const Agreement& agreement);

// What each algorithm that NCCL_ALGO allows would take, by the agreement's prices or those of
// device_constants.h; in the catalogue's order.
std::vector<AlgorithmCost> costsOf(const CallShape& shape, const Agreement& agreement);

}  // namespace tutti::plan
