#include "net/plugin/plugin_reduction.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "net/plugin/collnet_abi.h"
#include "net/plugin/plugin_calls.h"

namespace tutti::net::plugin {
namespace {

constexpr std::array<const char*, 6> kNewestFirst = {
    "ncclCollNetPlugin_v11", "ncclCollNetPlugin_v10", "ncclCollNetPlugin_v9",
    "ncclCollNetPlugin_v8",  "ncclCollNetPlugin_v7",  "ncclCollNetPlugin_v6"};
constexpr int kNewest = 11;

constexpr char kKind[] = "collnet";

// One version of the interface; the plug-in's own, so it is there as long as the process. Shared by
// the network, its members and groups: the plug-in ends with the last of them.
template <int kVersion>
struct Calls : CallCheck {
  const abi::Collnet<kVersion>& net;
  void* context = nullptr;
  bool isOpen = false;

  explicit Calls(const PluginLibrary& library)
      : CallCheck("collective network", library),
        net(*static_cast<const abi::Collnet<kVersion>*>(library.functions)) {}
  ~Calls() {
    if constexpr (kVersion == 11) {
      if (!isOpen || net.tail.finalize == nullptr) return;
      const ForeignCall call(subject(), "finalize");
      tell(net.tail.finalize(context), "finalize");
    }
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  Status init(uint64_t process) {
    const ForeignCall call(subject(), "init");
    if constexpr (kVersion <= 10) TUTTI_TRY(check(net.init(logAsPlugin<kKind>), "init"));
    if constexpr (kVersion == 11)
      TUTTI_TRY(check(net.init(&context, process, logAsPlugin<kKind>), "init"));
    isOpen = true;
    return {};
  }
  Status listen(int device, void* handle, void** listener) const {
    const ForeignCall call(subject(), "listen");
    if constexpr (kVersion <= 10) return check(net.listen(device, handle, listener), "listen");
    if constexpr (kVersion == 11)
      return check(net.listen(context, device, handle, listener), "listen");
  }
};

template <int kVersion>
using SharedCalls = std::shared_ptr<const Calls<kVersion>>;

// Says as long as it lives which call a thread is in, for others to see: a figure for people, which
// orders nothing.
class Entered {
 public:
  Entered(std::atomic<const char*>& call, const char* name) : call_(call) {
    call_.store(name, std::memory_order_relaxed);
  }
  ~Entered() { call_.store(nullptr, std::memory_order_relaxed); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  std::atomic<const char*>& call_;
};

template <int kVersion>
class PluginGroup final : public ReductionGroup {
 public:
  PluginGroup(SharedCalls<kVersion> calls, void* group, size_t members)
      : shared_(std::move(calls)), calls_(*shared_), group_(group), members_(members) {}
  ~PluginGroup() override {
    const ForeignCall call(calls_.subject(), "closeColl");
    calls_.tell(calls_.net.closeGroup(group_), "closeColl");
  }
  PluginGroup(const PluginGroup&) = delete;
  PluginGroup& operator=(const PluginGroup&) = delete;

  Result<Memory> enroll(std::span<std::byte> memory) override {
    using Size = typename abi::Types<kVersion>::RegisterSize;
    const ForeignCall call(calls_.subject(), "regMr");
    Memory enrolled;
    TUTTI_TRY(calls_.check(
        calls_.net.registerMemory(group_, memory.data(), static_cast<Size>(memory.size()),
                                  abi::kHostMemory, &enrolled.name),
        "regMr"));
    return enrolled;
  }
  void release(Memory memory) override {
    const ForeignCall call(calls_.subject(), "deregMr");
    calls_.tell(calls_.net.deregisterMemory(group_, memory.name), "deregMr");
  }

  Result<Request> post(const Reduction& reduction) override {
    if (reduction.collective != Collective::kAllReduce) return postBlocks(reduction);
    using Count = typename abi::CollnetTypes<kVersion>::Count;
    Request request;
    const Entered call(call_, "iallreduce");
    TUTTI_TRY(calls_.check(
        calls_.net.allReduce(group_, const_cast<std::byte*>(reduction.input), reduction.output,
                             static_cast<Count>(reduction.elementCount),
                             static_cast<ncclDataType_t>(reduction.type),
                             static_cast<ncclRedOp_t>(reduction.op), reduction.inputMemory.name,
                             reduction.outputMemory.name, &request.name),
        "iallreduce"));
    return request;
  }
  Result<bool> test(Request request) override {
    int isDone = 0;
    int size = 0;
    const Entered call(call_, "test");
    TUTTI_TRY(calls_.check(calls_.net.test(request.name, &isDone, &size), "test"));
    return isDone != 0;
  }
  const char* callUnderWay() const override { return call_.load(std::memory_order_relaxed); }

 private:
  // The list of parts has one: there are plug-ins that take no more.
  Result<Request> postBlocks(const Reduction& reduction) {
    if constexpr (kVersion < 8) {
      return Status(
          Code::kInternalError,
          fmt::format("version {} of collective networks neither gathers nor scatters", kVersion));
    } else {
      using Part = typename abi::CollnetMoves<kVersion>::Part;
      const bool isGather = reduction.collective == Collective::kAllGather;
      const size_t bytes = reduction.elementCount * sizeOf(reduction.type);
      const size_t all = bytes * members_;
      auto* input = const_cast<std::byte*>(reduction.input);
      Part whole{.memory = isGather ? reduction.outputMemory.name : reduction.inputMemory.name,
                 .data = isGather ? reduction.output : input,
                 .size = static_cast<decltype(Part::size)>(all)};
      Request request;
      const Entered call(call_, isGather ? "iallgather" : "ireducescatter");
      if (isGather) {
        TUTTI_TRY(
            calls_.check(calls_.net.moves.allGather(group_, input, 1, &whole, bytes, 0, all,
                                                    reduction.inputMemory.name, &request.name),
                         "iallgather"));
      } else {
        TUTTI_TRY(calls_.check(
            calls_.net.moves.reduceScatter(group_, 1, &whole, reduction.output, bytes, 0, all,
                                           static_cast<ncclDataType_t>(reduction.type),
                                           static_cast<ncclRedOp_t>(reduction.op),
                                           reduction.outputMemory.name, &request.name),
            "ireducescatter"));
      }
      return request;
    }
  }

  const SharedCalls<kVersion> shared_;
  const Calls<kVersion>& calls_;
  void* const group_;
  const size_t members_;
  std::atomic<const char*> call_{nullptr};
};

template <int kVersion>
class PluginMember final : public ReductionMember {
 public:
  explicit PluginMember(SharedCalls<kVersion> calls)
      : shared_(std::move(calls)), calls_(*shared_) {}
  ~PluginMember() override {
    if (listener_ == nullptr) return;
    const ForeignCall call(calls_.subject(), "closeListen");
    calls_.tell(calls_.net.closeListen(listener_), "closeListen");
  }
  PluginMember(const PluginMember&) = delete;
  PluginMember& operator=(const PluginMember&) = delete;

  Status listen(int device) { return calls_.listen(device, handle_.data(), &listener_); }
  const MemberHandle& handle() const override { return handle_; }

  Result<std::unique_ptr<ReductionGroup>> connect(std::span<const MemberHandle> members,
                                                  size_t number) override {
    // Its own: a plug-in may keep the state of its connecting there.
    if (members_.empty()) members_.assign(members.begin(), members.end());
    std::vector<void*> handles;
    for (Aligned& member : members_) handles.push_back(member.handle.data());
    void* group = nullptr;
    const ForeignCall call(calls_.subject(), "connect");
    TUTTI_TRY(calls_.check(calls_.net.connect(handles.data(), static_cast<int>(handles.size()),
                                              static_cast<int>(number), listener_, &group),
                           "connect"));
    std::unique_ptr<ReductionGroup> made;
    if (group != nullptr)
      made = std::make_unique<PluginGroup<kVersion>>(shared_, group, members_.size());
    return made;
  }

 private:
  struct Aligned {
    Aligned(const MemberHandle& from) : handle(from) {}
    alignas(16) MemberHandle handle;
  };
  const SharedCalls<kVersion> shared_;
  const Calls<kVersion>& calls_;
  alignas(16) MemberHandle handle_{};
  std::vector<Aligned> members_;
  void* listener_ = nullptr;
};
static_assert(sizeof(MemberHandle) >= abi::kHandleBytes);

template <int kVersion>
class PluginReduction final : public ReductionNetwork {
 public:
  explicit PluginReduction(const PluginLibrary& library)
      : shared_(std::make_shared<Calls<kVersion>>(library)), calls_(*shared_) {
    caps_.name = nameOf(library);
    caps_.description = fmt::format("plug-in {}, version {}", library.source, kVersion);
    // What a count of the interface's type can say.
    if constexpr (kVersion <= 8) caps_.maxBytes = std::numeric_limits<int>::max();
    if constexpr (kVersion >= 8) {
      caps_.gathers = calls_.net.moves.allGather != nullptr;
      caps_.scatters = calls_.net.moves.reduceScatter != nullptr;
    }
  }

  Status open(uint64_t process) {
    TUTTI_TRY(shared_->init(process));
    TUTTI_TRY_ASSIGN(adapters_, findAdapters<kVersion>(calls_, [this](const auto& properties) {
                       return take(properties);
                     }));
    caps_.deviceCount = adapters_.numbers.size();
    caps_.description += adapters_.description;
    return {};
  }

  const Caps& caps() const override { return caps_; }

  Result<bool> supports(DataType type, ReduceOp op) const override {
    const ForeignCall call(calls_.subject(), "reduceSupport");
    int isSupported = 0;
    TUTTI_TRY(calls_.check(calls_.net.reduceSupport(static_cast<ncclDataType_t>(type),
                                                    static_cast<ncclRedOp_t>(op), &isSupported),
                           "reduceSupport"));
    return isSupported != 0;
  }

  Result<std::unique_ptr<ReductionMember>> listen(size_t device) override {
    auto member = std::make_unique<PluginMember<kVersion>>(shared_);
    TUTTI_TRY(member->listen(adapters_.numbers[device]));
    return std::unique_ptr<ReductionMember>(std::move(member));
  }

 private:
  bool take(const typename abi::Types<kVersion>::Properties& properties) {
    if ((properties.memoryKinds & abi::kHostMemory) == 0) return false;
    if constexpr (kVersion >= 9) {
      if (properties.maxCollectiveBytes != 0)
        caps_.maxBytes = std::min(caps_.maxBytes, properties.maxCollectiveBytes);
    }
    return true;
  }

  const std::shared_ptr<Calls<kVersion>> shared_;
  const Calls<kVersion>& calls_;
  Caps caps_;
  Adapters adapters_;
};

}  // namespace

Result<std::unique_ptr<ReductionNetwork>> openReduction(const std::string& entry,
                                                        uint64_t process) {
  TUTTI_TRY_ASSIGN(const PluginLibrary library, findPlugin({.setting = "NCCL_NET_PLUGIN",
                                                            .kind = kFileKind,
                                                            .value = entry,
                                                            .symbolsNewestFirst = kNewestFirst,
                                                            .newest = kNewest}));
  if (!library.exists()) return std::unique_ptr<ReductionNetwork>();
  return forVersion(library.version,
                    [&]<int kVersion>() -> Result<std::unique_ptr<ReductionNetwork>> {
                      auto network = std::make_unique<PluginReduction<kVersion>>(library);
                      TUTTI_TRY(network->open(process));
                      return std::unique_ptr<ReductionNetwork>(std::move(network));
                    });
}

}  // namespace tutti::net::plugin
