#include "comm/profiler_plugin.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/log.h"
#include "base/plugin_file.h"
#include "comm/profiler_abi.h"
#include "net/foreign_calls.h"

namespace tutti::comm {
namespace {

namespace abi = profiler_abi;
using observe::CallNote;
using observe::EventKind;
using observe::GroupNote;
using observe::MessageNote;
using observe::TransferNote;

constexpr std::array<const char*, 5> kNewestFirst = {
    "ncclProfiler_v5", "ncclProfiler_v4", "ncclProfiler_v3", "ncclProfiler_v2", "ncclProfiler_v1"};
constexpr int kNewest = 5;
constexpr size_t kFunctions = 5;  // of each version
constexpr uint8_t kSimpleProtocol = 2;
constexpr uint8_t kOneChannel = 1;

constexpr char kKind[] = "profiler";

// As plug-ins print them, by the types' numbers.
constexpr std::array<const char*, kDataTypeCount> kTypeNames = {
    "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

const char* typeName(DataType type) { return kTypeNames[static_cast<size_t>(type)]; }

// Version 1 has numbers, and none for what came later: it sees sends and receives there.
uint8_t functionNumber(Collective collective) {
  constexpr uint8_t kSendAndReceive = 5;
  switch (collective) {
    case Collective::kBroadcast: return abi::kBroadcast;
    case Collective::kReduce: return abi::kReduce;
    case Collective::kAllGather: return abi::kAllGather;
    case Collective::kReduceScatter: return abi::kReduceScatter;
    case Collective::kAllReduce: return abi::kAllReduce;
    case Collective::kSend: return abi::kSend;
    case Collective::kRecv: return abi::kReceive;
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: break;
  }
  return kSendAndReceive;
}

// Whoever wants an event gets those above it, too.
uint64_t withParents(uint64_t wanted) {
  using enum abi::Kind;
  if ((wanted & kProxyStep) != 0) wanted |= kProxyOp;
  if ((wanted & (kProxyOp | kKernelChannel)) != 0) wanted |= kCollective | kPointToPoint;
  if ((wanted & kCollective) != 0) wanted |= kGroup | kCollectiveApi;
  if ((wanted & kPointToPoint) != 0) wanted |= kGroup | kPointToPointApi;
  if ((wanted & (kCollectiveApi | kPointToPointApi | kKernelLaunch)) != 0) wanted |= kGroupApi;
  return wanted;
}

// An event of ours and what the plug-in calls it; null where it does not keep it.
struct Event {
  void* own = nullptr;
  void* api = nullptr;  // of groups and calls, from version 5 on: the event above its own
  bool isSend = false;  // of transfers and messages, these four
  size_t bytes = 0;
  int steps = 0;
  Event* transfer = nullptr;  // of a message; outlives it
};

// One version's plug-in. A plug-in need not be thread-safe here: one call at a time.
template <int kVersion>
class PluginProfiler final : public observe::ProfilerSink {
  using Types = abi::Types<kVersion>;
  using Description = typename Types::Description;
  using StateArguments = typename Types::StateArguments;

 public:
  PluginProfiler(const PluginLibrary& library, ProfiledRank rank)
      : library_(library),
        functions_(*static_cast<const typename Types::Functions*>(library.functions)),
        rank_(std::move(rank)) {}
  ~PluginProfiler() override {
    if (isOpen_) functions_.finalize(context_);
  }
  PluginProfiler(const PluginProfiler&) = delete;
  PluginProfiler& operator=(const PluginProfiler&) = delete;

  ncclResult_t open() {
    int wanted = 0;
    ncclResult_t result = ncclInternalError;
    if constexpr (kVersion <= 3) {
      result = functions_.init(&context_, &wanted);
    } else if constexpr (kVersion == 4) {
      result = functions_.init(&context_, &wanted, rank_.name.c_str(), rank_.communicator,
                               rank_.nodeCount, rank_.rankCount, rank_.rank, logAsPlugin<kKind>);
    } else {
      result = functions_.init(&context_, rank_.communicator, &wanted, rank_.name.c_str(),
                               rank_.nodeCount, rank_.rankCount, rank_.rank, logAsPlugin<kKind>);
    }
    isOpen_ = result == ncclSuccess;
    wanted_ = withParents(static_cast<uint64_t>(wanted));
    return result;
  }

  Handle beginGroup(const GroupNote& note, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    Event& event = take();
    if constexpr (kVersion >= 5) {
      Description api = describe(abi::kGroupApi, nullptr);
      api.groupApi = {.isCaptured = note.isCaptured ? 1 : 0, .depth = note.isUsers ? 2 : 1};
      event.api = start(api);
      // Both ends of the group's calls are behind us: it is told of when it is handed over.
      tellState(event.api, abi::kGroupStartApiStop, nullptr);
      tellState(event.api, abi::kGroupEndApiStart, nullptr);
    }
    Description own = describe(abi::kGroup, nullptr);
    event.own = start(own);
    return &event;
  }

  Handle beginCall(Handle group, const CallNote& note, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    const auto& parent = *static_cast<Event*>(group);
    Event& event = take();
    if (isPointToPoint(note.collective)) {
      beginPointToPoint(event, parent, note);
    } else {
      beginCollective(event, parent, note);
    }
    return &event;
  }

  Handle beginLaunch(Handle group, void* stream, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    if constexpr (kVersion < 5) return nullptr;
    Event& event = take();
    Description own = describe(abi::kKernelLaunch, static_cast<Event*>(group)->api);
    own.kernelLaunch = {.stream = stream};
    event.own = start(own);
    return &event;
  }

  // A GPU's kernel, or what would be one.
  Handle beginRun(Handle call, Instant now) override {
    const std::lock_guard lock(mutex_);
    if constexpr (kVersion < 3) return nullptr;
    Event& event = take();
    Description own = describe(abi::kKernelChannel, static_cast<Event*>(call)->own);
    own.kernelChannel = {.channel = 0, .timer = static_cast<uint64_t>(now)};
    event.own = start(own);
    return &event;
  }

  Handle beginTransfer(Handle call, const TransferNote& note, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    Event& event = take();
    event.isSend = note.isSend;
    Description own = describe(abi::kProxyOp, static_cast<Event*>(call)->own);
    own.proxyOp = {.process = ::getpid(),
                   .channel = 0,
                   .peer = note.peer,
                   .steps = static_cast<int>(note.messageCount),
                   .chunkBytes = static_cast<int>(note.messageBytes),
                   .isSend = note.isSend ? 1 : 0};
    event.own = start(own);
    if constexpr (kVersion >= 4) tellState(event.own, abi::kProxyOpInProgress, nullptr);
    return &event;
  }

  Handle beginMessage(Handle transfer, const MessageNote& note, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    Event& event = take();
    event.transfer = static_cast<Event*>(transfer);
    event.isSend = event.transfer->isSend;
    Description own = describe(abi::kProxyStep, event.transfer->own);
    own.proxyStep = {.step = static_cast<int>(note.step)};
    event.own = start(own);
    ++event.transfer->steps;
    tellTransfer(event, event.isSend ? abi::kSendPosted : abi::kReceivePosted);
    if (!event.isSend) {
      tellStep(event, abi::kStepReceiveWait);
    } else if constexpr (kVersion >= 4) {
      tellStep(event, abi::kStepSendPeerWait);
    } else {
      tellTransfer(event, abi::kSendRemoteWait);
    }
    return &event;
  }

  void messageMoved(Handle message, uint64_t bytes, Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    auto& event = *static_cast<Event*>(message);
    event.bytes = bytes;
    event.transfer->bytes += bytes;
    tellTransfer(event, event.isSend ? abi::kSendTransmitted : abi::kReceiveReceived);
    tellStep(event, event.isSend ? abi::kStepSendWait : abi::kStepReceiveGpuWait);
    if (!event.isSend) tellTransfer(event, abi::kReceiveTransmitted);
  }

  void end(EventKind kind, Handle handle, Instant now) override {
    const std::lock_guard lock(mutex_);
    auto& event = *static_cast<Event*>(handle);
    if (kind == EventKind::kMessage)
      tellTransfer(event, event.isSend ? abi::kSendDone : abi::kReceiveDone);
    if constexpr (kVersion >= 4) {
      StateArguments arguments{};
      arguments.kernelChannel.timer = static_cast<uint64_t>(now);
      if (kind == EventKind::kRun) tellState(event.own, abi::kKernelChannelStop, &arguments);
    }
    stop(event.own);
    stop(event.api);
    free_.push_back(&event);
  }

  // The interface has no word for it.
  void drop(size_t /*calls*/) override {}

 private:
  static Description describe(uint64_t kind, void* parent, int rank) {
    Description description{};
    description.kind = static_cast<decltype(description.kind)>(kind);
    description.parent = parent;
    description.rank = rank;
    return description;
  }
  Description describe(uint64_t kind, void* parent) const {
    return describe(kind, parent, rank_.rank);
  }

  // What collectives and transfers have alike.
  template <class Facts>
  void fillCommon(Facts& facts, const Event& parent, const CallNote& note) {
    if constexpr (kVersion <= 3) {
      facts.communicator = rank_.name.c_str();
      facts.communicatorHash = rank_.communicator;
    }
    if constexpr (kVersion == 1) {
      facts.function = functionNumber(note.collective);
      facts.type = static_cast<uint8_t>(note.type);
    } else {
      facts.function = wordOf(name(note.collective), false).c_str();
      facts.type = typeName(note.type);
    }
    facts.count = note.count;
    if constexpr (kVersion >= 4) facts.channels = kOneChannel;
    if constexpr (kVersion >= 5) facts.group = parent.own;
  }

  void beginCollective(Event& event, const Event& parent, const CallNote& note) {
    if constexpr (kVersion >= 5) {
      Description api = describe(abi::kCollectiveApi, parent.api);
      api.collectiveApi = {.function = wordOf(name(note.collective), false).c_str(),
                           .count = note.count,
                           .type = typeName(note.type),
                           .root = note.peer,
                           .stream = note.stream,
                           .isCaptured = note.isCaptured};
      event.api = start(api);
    }
    Description own = describe(abi::kCollective, kVersion >= 5 ? event.api : parent.own);
    auto& facts = own.collective;
    fillCommon(facts, parent, note);
    facts.sequence = sequences_[static_cast<size_t>(note.collective)]++;
    facts.input = note.input;
    facts.output = note.output;
    facts.root = note.peer;
    if constexpr (kVersion == 1) {
      facts.op = static_cast<uint32_t>(note.op);
      facts.algorithm = note.algorithm == "ring" ? 1 : 0;
      facts.protocol = kSimpleProtocol;
    } else {
      facts.algorithm = wordOf(note.algorithm, true).c_str();
      facts.protocol = "SIMPLE";
    }
    if constexpr (kVersion <= 2) facts.trafficBytes = note.count * sizeOf(note.type);
    if constexpr (kVersion <= 3) facts.mostChannels = kOneChannel;
    event.own = start(own);
  }

  void beginPointToPoint(Event& event, const Event& parent, const CallNote& note) {
    if constexpr (kVersion >= 5) {
      Description api = describe(abi::kPointToPointApi, parent.api);
      api.pointToPointApi = {.function = wordOf(name(note.collective), false).c_str(),
                             .count = note.count,
                             .type = typeName(note.type),
                             .stream = note.stream,
                             .isCaptured = note.isCaptured};
      event.api = start(api);
    }
    Description own = describe(abi::kPointToPoint, kVersion >= 5 ? event.api : parent.own);
    auto& facts = own.pointToPoint;
    fillCommon(facts, parent, note);
    facts.buffer =
        note.collective == Collective::kSend ? const_cast<void*>(note.input) : note.output;
    facts.peer = note.peer;
    event.own = start(own);
  }

  // Null where the plug-in does not want such events.
  void* start(Description& description) {
    if (hasFailed_ || (wanted_ & description.kind) == 0) return nullptr;
    void* event = nullptr;
    return failed("startEvent", functions_.startEvent(context_, &event, &description)) ? nullptr
                                                                                       : event;
  }

  void stop(void* event) {
    if (event != nullptr && !hasFailed_) failed("stopEvent", functions_.stopEvent(event));
  }

  void tellState(void* event, int state, StateArguments* arguments) {
    StateArguments none{};
    if (event == nullptr || hasFailed_) return;
    failed("recordEventState",
           functions_.recordEventState(event, state, arguments == nullptr ? &none : arguments));
  }

  // Until version 3 the states of messages are their transfer's.
  void tellTransfer(const Event& message, int state) {
    if constexpr (kVersion <= 3) {
      StateArguments arguments{};
      arguments.proxyOp = {.bytes = message.transfer->bytes, .steps = message.transfer->steps};
      tellState(message.transfer->own, state, &arguments);
    }
  }

  void tellStep(const Event& message, int state) {
    StateArguments arguments{};
    if constexpr (kVersion >= 4) arguments.proxyStep = {.bytes = message.bytes};
    tellState(message.own, state, &arguments);
  }

  bool failed(const char* function, ncclResult_t result) {
    if (result == ncclSuccess) return false;
    hasFailed_ = true;
    log::warn(
        "profiler plug-in {} of {}: {} returned {}; from here on rank {} tells it nothing more "
        "(NCCL_PROFILER_PLUGIN=none does so from the start)",
        nameOf(library_), library_.source, function, static_cast<int>(result), rank_.rank);
    return true;
  }

  Event& take() {
    if (free_.empty()) {
      events_.emplace_back();
      free_.reserve(events_.size());
      return events_.back();
    }
    Event& event = *free_.back();
    free_.pop_back();
    event = {};
    return event;
  }

  // For plug-ins that keep the pointer: it stays good as long as the communicator.
  const std::string& wordOf(std::string_view word, bool isUpper) {
    std::string text(word);
    if (isUpper) {
      std::ranges::transform(text, text.begin(), [](unsigned char letter) {
        return static_cast<char>(std::toupper(letter));
      });
    }
    return words_.try_emplace(text, text).first->second;
  }

  const PluginLibrary library_;
  const typename Types::Functions& functions_;
  const ProfiledRank rank_;
  void* context_ = nullptr;
  bool isOpen_ = false;
  uint64_t wanted_ = 0;  // abi::Kind

  std::mutex mutex_;  // guards all below, and the plug-in
  bool hasFailed_ = false;
  std::deque<Event> events_;
  std::vector<Event*> free_;
  std::map<std::string, std::string> words_;
  std::array<uint64_t, kCollectiveCount> sequences_{};  // each collective counts its own calls
};

template <int kVersion>
Result<std::unique_ptr<observe::ProfilerSink>> openVersion(const PluginLibrary& library,
                                                           const ProfiledRank& rank) {
  auto profiler = std::make_unique<PluginProfiler<kVersion>>(library, rank);
  const net::ForeignCall call(
      fmt::format("profiler plug-in {} of {}", nameOf(library), library.source), "init");
  const ncclResult_t result = profiler->open();
  if (result != ncclSuccess) {
    return invalidUsage(
        "profiler plug-in of {} (version {}): init returned {}; rank {} does "
        "without it",
        library.source, library.version, static_cast<int>(result), rank.rank);
  }
  return std::unique_ptr<observe::ProfilerSink>(std::move(profiler));
}

}  // namespace

Result<PluginLibrary> loadProfiler(const std::string& setting) {
  const net::ForeignCall call("NCCL_PROFILER_PLUGIN=" + setting, "dlopen");
  return findPlugin({.setting = "NCCL_PROFILER_PLUGIN",
                     .kind = kKind,
                     .value = setting,
                     .symbolsNewestFirst = kNewestFirst,
                     .newest = kNewest,
                     .functionCount = kFunctions});
}

Result<std::unique_ptr<observe::ProfilerSink>> openProfiler(const PluginLibrary& library,
                                                            const ProfiledRank& rank) {
  switch (library.version) {
    case 1: return openVersion<1>(library, rank);
    case 2: return openVersion<2>(library, rank);
    case 3: return openVersion<3>(library, rank);
    case 4: return openVersion<4>(library, rank);
    default: return openVersion<5>(library, rank);
  }
}

}  // namespace tutti::comm
