#include "net/plugin/plugin_reduction.h"

#include <algorithm>
#include <array>
#include <limits>
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

// One version of the interface; the plug-in's own, so it is there as long as the process.
template <int kVersion>
struct Calls : CallCheck {
  const abi::Collnet<kVersion>& net;
  void* context = nullptr;

  explicit Calls(const PluginLibrary& library)
      : CallCheck("collective network", library),
        net(*static_cast<const abi::Collnet<kVersion>*>(library.functions)) {}

  Status init(uint64_t process) {
    if constexpr (kVersion <= 10) return check(net.init(logAsPlugin<kKind>), "init");
    if constexpr (kVersion == 11)
      return check(net.init(&context, process, logAsPlugin<kKind>), "init");
  }
  Status listen(int device, void* handle, void** listener) const {
    if constexpr (kVersion <= 10) return check(net.listen(device, handle, listener), "listen");
    if constexpr (kVersion == 11)
      return check(net.listen(context, device, handle, listener), "listen");
  }
};

template <int kVersion>
class PluginGroup final : public ReductionGroup {
 public:
  PluginGroup(const Calls<kVersion>& calls, void* group, size_t members)
      : calls_(calls), group_(group), members_(members) {}
  ~PluginGroup() override { calls_.tell(calls_.net.closeGroup(group_), "closeColl"); }
  PluginGroup(const PluginGroup&) = delete;
  PluginGroup& operator=(const PluginGroup&) = delete;

  Result<Memory> enroll(std::span<std::byte> memory) override {
    using Size = typename abi::Types<kVersion>::RegisterSize;
    Memory enrolled;
    TUTTI_TRY(calls_.check(
        calls_.net.registerMemory(group_, memory.data(), static_cast<Size>(memory.size()),
                                  abi::kHostMemory, &enrolled.name),
        "regMr"));
    return enrolled;
  }
  void release(Memory memory) override {
    calls_.tell(calls_.net.deregisterMemory(group_, memory.name), "deregMr");
  }

  Result<Request> post(const Reduction& reduction) override {
    if (reduction.collective != Collective::kAllReduce) return postBlocks(reduction);
    using Count = typename abi::CollnetTypes<kVersion>::Count;
    Request request;
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
    TUTTI_TRY(calls_.check(calls_.net.test(request.name, &isDone, &size), "test"));
    return isDone != 0;
  }

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

  const Calls<kVersion>& calls_;
  void* const group_;
  const size_t members_;
};

template <int kVersion>
class PluginMember final : public ReductionMember {
 public:
  explicit PluginMember(const Calls<kVersion>& calls) : calls_(calls) {}
  ~PluginMember() override {
    if (listener_ != nullptr) calls_.tell(calls_.net.closeListen(listener_), "closeListen");
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
    TUTTI_TRY(calls_.check(calls_.net.connect(handles.data(), static_cast<int>(handles.size()),
                                              static_cast<int>(number), listener_, &group),
                           "connect"));
    std::unique_ptr<ReductionGroup> made;
    if (group != nullptr)
      made = std::make_unique<PluginGroup<kVersion>>(calls_, group, members_.size());
    return made;
  }

 private:
  struct Aligned {
    Aligned(const MemberHandle& from) : handle(from) {}
    alignas(16) MemberHandle handle;
  };
  const Calls<kVersion>& calls_;
  alignas(16) MemberHandle handle_{};
  std::vector<Aligned> members_;
  void* listener_ = nullptr;
};
static_assert(sizeof(MemberHandle) >= abi::kHandleBytes);

template <int kVersion>
class PluginReduction final : public ReductionNetwork {
 public:
  explicit PluginReduction(const PluginLibrary& library) : calls_(library) {
    caps_.name = nameOf(library);
    caps_.description = fmt::format("plug-in {}, version {}", library.source, kVersion);
    // What a count of the interface's type can say.
    if constexpr (kVersion <= 8) caps_.maxBytes = std::numeric_limits<int>::max();
    if constexpr (kVersion >= 8) {
      caps_.gathers = calls_.net.moves.allGather != nullptr;
      caps_.scatters = calls_.net.moves.reduceScatter != nullptr;
    }
  }
  ~PluginReduction() override {
    if constexpr (kVersion == 11) {
      if (isOpen_ && calls_.net.tail.finalize != nullptr)
        calls_.tell(calls_.net.tail.finalize(calls_.context), "finalize");
    }
  }
  PluginReduction(const PluginReduction&) = delete;
  PluginReduction& operator=(const PluginReduction&) = delete;

  Status open(uint64_t process) {
    {
      const ForeignCall call(calls_.subject(), "init");
      TUTTI_TRY(calls_.init(process));
    }
    isOpen_ = true;
    TUTTI_TRY_ASSIGN(adapters_, findAdapters<kVersion>(calls_, [this](const auto& properties) {
                       return take(properties);
                     }));
    caps_.deviceCount = adapters_.numbers.size();
    caps_.description += adapters_.description;
    return {};
  }

  const Caps& caps() const override { return caps_; }

  Result<bool> supports(DataType type, ReduceOp op) const override {
    int isSupported = 0;
    TUTTI_TRY(calls_.check(calls_.net.reduceSupport(static_cast<ncclDataType_t>(type),
                                                    static_cast<ncclRedOp_t>(op), &isSupported),
                           "reduceSupport"));
    return isSupported != 0;
  }

  Result<std::unique_ptr<ReductionMember>> listen(size_t device) override {
    auto member = std::make_unique<PluginMember<kVersion>>(calls_);
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

  Calls<kVersion> calls_;
  Caps caps_;
  Adapters adapters_;
  bool isOpen_ = false;
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
