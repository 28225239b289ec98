#include "comm/tuner_plugin.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "base/plugin_file.h"
#include "comm/tuner_abi.h"
#include "graph/nccl_constants.h"
#include "net/foreign_calls.h"

namespace tutti::comm {
namespace {

namespace abi = tuner_abi;
using abi::Constants, abi::CostTable, abi::NvlDomains;
using abi::kAlgorithmRows, abi::kProtocolColumns, abi::kSimple, abi::kLl, abi::kLl128;
using abi::kTree, abi::kRing, abi::kPat, abi::kUndefined, abi::kIgnored;
using abi::V2, abi::V3, abi::V4, abi::V5;

constexpr std::array<const char*, 4> kNewestFirst = {"ncclTunerPlugin_v5", "ncclTunerPlugin_v4",
                                                     "ncclTunerPlugin_v3", "ncclTunerPlugin_v2"};
constexpr int kNewest = 5;
constexpr size_t kFunctions = 3;  // of each version

constexpr char kKind[] = "tuner";

std::optional<int> functionOf(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast: return tuner_abi::kBroadcast;
    case Collective::kReduce: return tuner_abi::kReduce;
    case Collective::kAllGather: return tuner_abi::kAllGather;
    case Collective::kReduceScatter: return tuner_abi::kReduceScatter;
    case Collective::kAllReduce: return tuner_abi::kAllReduce;
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv: break;
  }
  return std::nullopt;
}

// CPU ranks' algorithms that have a row in the table; all of them move slots, as Simple does.
constexpr std::array<std::pair<std::string_view, int>, 5> kRows = {
    {{"tree", kTree},
     {"ring", kRing},
     {"pat", kPat},
     {"collnetdirect", abi::kCollnetDirect},
     {"collnetchain", abi::kCollnetChain}}};

struct Place {
  int row = 0;
  int column = 0;
  bool operator==(const Place&) const = default;
};

// GPU kernels, which know no ring or tree, stand in the row that every collective has.
std::optional<Place> placeOf(const plan::Tuner::Question& question, std::string_view algorithm,
                             graph::Protocol protocol) {
  if (question.areKernels) return Place{kRing, static_cast<int>(protocol)};
  const auto found = std::ranges::find(kRows, algorithm, [](const auto& row) { return row.first; });
  if (found == kRows.end()) return std::nullopt;
  return Place{found->second, kSimple};
}

std::optional<Place> placeOf(const plan::Tuner::Question& question,
                             const plan::AlgorithmCost& cost) {
  return placeOf(question, cost.algorithm, cost.protocol);
}

// The table's numbers are in our constants' order.
static_assert(static_cast<int>(graph::Method::kTree) == kTree &&
              static_cast<int>(graph::Method::kPat) == kPat);
static_assert(static_cast<int>(graph::Protocol::kSimple) == kSimple &&
              static_cast<int>(graph::Protocol::kLl) == kLl);

void fill(Constants& constants) {
  const graph::NcclConstants& known = graph::nccl229();
  for (size_t row = 0; row < kAlgorithmRows; ++row) {
    for (size_t column = 0; column < kProtocolColumns; ++column) {
      constants.baseLatencies[row][column] = known.baseUs[row][column];
      constants.linkLatencies[0][row][column] = known.nvLinkUs[row][column];
      constants.linkLatencies[1][row][column] = known.pciUs[row][column];
      constants.linkLatencies[2][row][column] = known.networkUs[row][column];
    }
  }
  for (size_t i = 0; i < graph::kGenerationCount; ++i) {
    for (size_t nodes = 0; nodes < 3; ++nodes) {
      constants.llBandwidths[i][nodes] = known.generations[i].llGbPerSecond[nodes];
      constants.treeBandwidths[i][nodes] = known.generations[i].treeGbPerSecondPerChannel[nodes];
    }
  }
}

// All versions behind one face. A plug-in need not be thread-safe, so one call at a time.
class PluginTuner final : public plan::Tuner {
 public:
  explicit PluginTuner(const PluginLibrary& library) : library_(library), name_(nameOf(library)) {}
  ~PluginTuner() override {
    if (!isOpen_) return;
    switch (library_.version) {
      case 2: as<V2>().destroy(context_); break;
      case 3: as<V3>().destroy(context_); break;
      case 4: as<V4>().destroy(context_); break;
      default: as<V5>().finalize(context_); break;
    }
  }
  PluginTuner(const PluginTuner&) = delete;
  PluginTuner& operator=(const PluginTuner&) = delete;

  ncclResult_t open(const TunedCommunicator& communicator) {
    const auto ranks = static_cast<size_t>(communicator.rankCount);
    const auto nodes = static_cast<size_t>(communicator.nodeCount);
    ncclResult_t result = ncclInternalError;
    switch (library_.version) {
      case 2: result = as<V2>().init(ranks, nodes, logAsPlugin<kKind>, &context_); break;
      case 3: result = as<V3>().init(ranks, nodes, logAsPlugin<kKind>, &context_); break;
      case 4: result = as<V4>().init(ranks, nodes, logAsPlugin<kKind>, &context_); break;
      default: {
        NvlDomains domains{.count = communicator.nodeCount,
                           .fewestRanks = communicator.rankCount / communicator.nodeCount,
                           .mostRanks = communicator.rankCount};
        result = as<V5>().init(&context_, communicator.id, ranks, nodes, logAsPlugin<kKind>,
                               &domains, &constants_);
        break;
      }
    }
    isOpen_ = result == ncclSuccess;
    return result;
  }

  std::string_view name() const override { return name_; }

  Advice advise(const Question& question) override {
    const std::optional<int> function = functionOf(question.collective);
    if (!function) return {};
    const std::lock_guard lock(mutex_);
    if (hasFailed_) return {};
    return library_.version == 2 ? adviseByNumber(question, *function)
                                 : adviseByTable(question, *function);
  }

 private:
  template <typename V>
  const V& as() const {
    return *static_cast<const V*>(library_.functions);
  }

  Advice adviseByNumber(const Question& question, int function) {
    int algorithm = kUndefined, protocol = kUndefined, channels = 0;
    if (failed(as<V2>().getCollInfo(context_, function, question.bytes, 0, 0, 1, &algorithm,
                                    &protocol, &channels)))
      return {};
    const Advice none{.channels = std::max(channels, 0)};
    if (algorithm == kUndefined) return none;
    for (const plan::AlgorithmCost& each : question.costs) {
      const std::optional<Place> place = placeOf(question, each);
      const bool isMeant =
          place && place->row == algorithm && (!question.areKernels || place->column == protocol);
      if (isMeant) return adviceFor(each, none.channels);
    }
    complain(question, {algorithm, protocol});
    return none;
  }

  static Advice adviceFor(const plan::AlgorithmCost& cost, int channels) {
    return {.algorithm = cost.algorithm, .protocol = cost.protocol, .channels = channels};
  }

  Advice adviseByTable(const Question& question, int function) {
    CostTable table;
    std::fill_n(&table[0][0], kAlgorithmRows * kProtocolColumns, kIgnored);
    double ownUs = 0;
    for (const plan::AlgorithmCost& each : question.costs) {
      if (const auto place = placeOf(question, each))
        table[place->row][place->column] = static_cast<float>(each.us);
      if (isChosen(question, each)) ownUs = each.us;
    }
    CostTable before;
    std::copy_n(&table[0][0], kAlgorithmRows * kProtocolColumns, &before[0][0]);
    int channels = 0;
    if (failed(askForTable(question, function, table, channels))) return {};
    const bool isSame =
        std::equal(&table[0][0], &table[0][0] + kAlgorithmRows * kProtocolColumns, &before[0][0]);
    const plan::AlgorithmCost* best = isSame ? nullptr : cheapest(question, table, ownUs);
    if (best == nullptr) return {.channels = std::max(channels, 0)};
    return adviceFor(*best, std::max(channels, 0));
  }

  static bool isChosen(const Question& question, const plan::AlgorithmCost& cost) {
    return cost.algorithm == question.chosen && cost.protocol == question.chosenProtocol;
  }

  // Algorithms without a row keep the cost that they have. Null: the chosen one, or none is left.
  const plan::AlgorithmCost* cheapest(const Question& question, const CostTable& table,
                                      double ownUs) {
    const bool keepsOwn = !placeOf(question, question.chosen, question.chosenProtocol);
    const plan::AlgorithmCost* best = nullptr;
    auto bestUs = static_cast<float>(ownUs);
    std::array<bool, kAlgorithmRows * kProtocolColumns> isOurs{};
    for (const plan::AlgorithmCost& each : question.costs) {
      const auto place = placeOf(question, each);
      if (!place) continue;
      isOurs[static_cast<size_t>(place->row * kProtocolColumns + place->column)] = true;
      const float us = table[place->row][place->column];
      if (!(us >= 0) || ((keepsOwn || best != nullptr) && us >= bestUs)) continue;
      best = &each;
      bestUs = us;
    }
    for (int row = 0; row < kAlgorithmRows; ++row) {
      for (int column = 0; column < kProtocolColumns; ++column) {
        const bool isOther = !isOurs[static_cast<size_t>(row * kProtocolColumns + column)];
        if (isOther && table[row][column] == 0) complain(question, {row, column});
      }
    }
    return best != nullptr && isChosen(question, *best) ? nullptr : best;
  }

  ncclResult_t askForTable(const Question& question, int function, CostTable& table,
                           int& channels) {
    auto** costs = reinterpret_cast<float**>(&table[0][0]);
    switch (library_.version) {
      case 3:
        return as<V3>().getCollInfo(context_, function, question.bytes, 1, costs, kAlgorithmRows,
                                    kProtocolColumns, &channels);
      case 4:
        return as<V4>().getCollInfo(context_, function, question.bytes, 1, costs, kAlgorithmRows,
                                    kProtocolColumns, 0, &channels);
      default:
        return as<V5>().getCollInfo(context_, function, question.bytes, 1, costs, kAlgorithmRows,
                                    kProtocolColumns, 0, &channels);
    }
  }

  bool failed(ncclResult_t result) {
    if (result == ncclSuccess) return false;
    hasFailed_ = true;
    log::warn(
        "tuner plug-in {} of {}: getCollInfo returned {}; from here on this communicator "
        "chooses for itself (NCCL_TUNER_PLUGIN=none does so from the start)",
        name(), library_.source, static_cast<int>(result));
    return true;
  }

  void complain(const Question& question, const Place& place) {
    if (hasComplained_) return;
    hasComplained_ = true;
    log::info(
        log::Subsystem::kTuning,
        "tuner plug-in {}: algorithm {} by protocol {} is wanted for {}, which {} do not have",
        name(), place.row, place.column, tutti::name(question.collective),
        question.areKernels ? "this library's GPU kernels" : "CPU ranks");
  }

  const PluginLibrary library_;
  const std::string name_;
  Constants constants_ = [] {
    Constants constants{};
    fill(constants);
    return constants;
  }();  // the plug-in may keep a pointer to it
  void* context_ = nullptr;
  bool isOpen_ = false;

  std::mutex mutex_;  // guards the two below, and the plug-in
  bool hasFailed_ = false;
  bool hasComplained_ = false;
};

}  // namespace

Result<PluginLibrary> loadTuner(const std::string& setting) {
  const net::ForeignCall call("NCCL_TUNER_PLUGIN=" + setting, "dlopen");
  return findPlugin({.setting = "NCCL_TUNER_PLUGIN",
                     .kind = kKind,
                     .value = setting,
                     .symbolsNewestFirst = kNewestFirst,
                     .newest = kNewest,
                     .functionCount = kFunctions});
}

Result<std::unique_ptr<plan::Tuner>> openTuner(const PluginLibrary& library,
                                               const TunedCommunicator& communicator) {
  auto tuner = std::make_unique<PluginTuner>(library);
  const std::string who = fmt::format("tuner plug-in {} of {}", nameOf(library), library.source);
  const net::ForeignCall call(who, "init");
  const ncclResult_t result = tuner->open(communicator);
  if (result != ncclSuccess) {
    return invalidUsage("{} (version {}): init returned {}", who, library.version,
                        static_cast<int>(result));
  }
  return std::unique_ptr<plan::Tuner>(std::move(tuner));
}

}  // namespace tutti::comm
