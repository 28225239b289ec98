#include "net/plugin/plugin_fabric.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "net/plugin/net_abi.h"
#include "net/plugin/plugin_calls.h"

namespace tutti::net::plugin {
namespace {

constexpr std::array<const char*, 6> kNewestFirst = {"ncclNetPlugin_v11", "ncclNetPlugin_v10",
                                                     "ncclNetPlugin_v9",  "ncclNetPlugin_v8",
                                                     "ncclNetPlugin_v7",  "ncclNetPlugin_v6"};
constexpr int kNewest = 11;

constexpr char kKind[] = "net";
constexpr size_t kMinMessageBytes = 65'536;

// Plug-ins may tell a profiler about their events; nobody listens.
ncclResult_t ignoreEvent(void**, int, void*, int64_t, void*) { return ncclSuccess; }

// How a connection's end is made. From version 11 on a traffic class is its context's.
struct Way {
  int device = 0;
  int trafficClass = kNoTrafficClass;
  void* context = nullptr;
};

// One version of the interface: its functions, and how they are called. The plug-in's own, so it is
// there as long as the process.
template <int kVersion>
struct Calls : CallCheck {
  const abi::Net<kVersion>& net;

  explicit Calls(const PluginLibrary& library)
      : CallCheck("network plug-in", library),
        net(*static_cast<const abi::Net<kVersion>*>(library.functions)) {}

  // Gives a context, from version 11 on.
  Result<void*> init(uint64_t communicator, int trafficClass) const {
    abi::Config config{.trafficClass = trafficClass};
    void* context = nullptr;
    const ForeignCall call(subject(), "init");
    if constexpr (kVersion <= 9) TUTTI_TRY(check(net.init(logAsPlugin<kKind>), "init"));
    if constexpr (kVersion == 10)
      TUTTI_TRY(check(net.init(logAsPlugin<kKind>, ignoreEvent), "init"));
    if constexpr (kVersion == 11) {
      TUTTI_TRY(check(net.init(&context, communicator, &config, logAsPlugin<kKind>, ignoreEvent),
                      "init"));
    }
    return context;
  }

  Status listen(const Way& way, void* handle, void** listener) const {
    const ForeignCall call(subject(), "listen");
    if constexpr (kVersion <= 10) return check(net.listen(way.device, handle, listener), "listen");
    if constexpr (kVersion == 11)
      return check(net.listen(way.context, way.device, handle, listener), "listen");
  }

  Status connect(const Way& way, void* handle, void** sender) const {
    void* onDevice = nullptr;
    abi::Config config{.trafficClass = way.trafficClass};
    const ForeignCall call(subject(), "connect");
    if constexpr (kVersion == 6) return check(net.connect(way.device, handle, sender), "connect");
    if constexpr (kVersion >= 7 && kVersion <= 9)
      return check(net.connect(way.device, handle, sender, &onDevice), "connect");
    if constexpr (kVersion == 10)
      return check(net.connect(way.device, &config, handle, sender, &onDevice), "connect");
    if constexpr (kVersion == 11)
      return check(net.connect(way.context, way.device, handle, sender, &onDevice), "connect");
  }

  Status accept(void* listener, void** receiver) const {
    void* onDevice = nullptr;
    const ForeignCall call(subject(), "accept");
    if constexpr (kVersion == 6) return check(net.accept(listener, receiver), "accept");
    if constexpr (kVersion >= 7) return check(net.accept(listener, receiver, &onDevice), "accept");
  }

  Status send(void* sender, std::span<std::byte> bytes, void* memory, void** request) const {
    using Size = typename abi::Types<kVersion>::MessageSize;
    const auto size = static_cast<Size>(bytes.size());
    if constexpr (kVersion <= 9)
      return check(net.send(sender, bytes.data(), size, 0, memory, request), "isend");
    if constexpr (kVersion >= 10)
      return check(net.send(sender, bytes.data(), size, 0, memory, nullptr, request), "isend");
  }

  Status receive(void* receiver, std::span<std::byte> bytes, void* memory, void** request) const {
    using Size = typename abi::Types<kVersion>::MessageSize;
    void* data = bytes.data();
    auto size = static_cast<Size>(bytes.size());
    int tag = 0;
    void* parent = nullptr;
    if constexpr (kVersion <= 9)
      return check(net.receive(receiver, 1, &data, &size, &tag, &memory, request), "irecv");
    if constexpr (kVersion >= 10) {
      return check(net.receive(receiver, 1, &data, &size, &tag, &memory, &parent, request),
                   "irecv");
    }
  }

  Status enroll(void* connection, std::span<std::byte> bytes, void** memory) const {
    using Size = typename abi::Types<kVersion>::RegisterSize;
    if (!std::in_range<Size>(bytes.size()))
      return failure(fmt::format("it cannot be told of {} bytes at once", bytes.size()));
    return check(net.registerMemory(connection, bytes.data(), static_cast<Size>(bytes.size()),
                                    abi::kHostMemory, memory),
                 "regMr");
  }

  // By a descriptor where there is one and the plug-in has a use for it.
  Status enrollGpu(void* connection, const GpuRegion& region, int kinds, void** memory) const {
    using Size = typename abi::Types<kVersion>::RegisterSize;
    const std::span<std::byte> bytes = region.bytes;
    Status byBuffer;
    if ((kinds & abi::kDmaBuffers) != 0 && region.dmaBuffer >= 0 &&
        net.registerDmaBuffer != nullptr) {
      byBuffer = check(net.registerDmaBuffer(connection, bytes.data(), bytes.size(),
                                             abi::kGpuMemory, 0, region.dmaBuffer, memory),
                       "regMrDmaBuf");
      if (byBuffer.ok()) return byBuffer;
    }
    if ((kinds & abi::kGpuMemory) != 0) {
      return check(net.registerMemory(connection, bytes.data(), static_cast<Size>(bytes.size()),
                                      abi::kGpuMemory, memory),
                   "regMr of a GPU's memory");
    }
    return byBuffer.ok() ? failure(
                               "it takes memory of GPUs as DMA buffers only, of which there is "
                               "none here")
                         : std::move(byBuffer);
  }
};

enum class Side : uint8_t { kSender, kReceiver };

template <int kVersion>
class PluginLane final : public Lane {
 public:
  PluginLane(const Calls<kVersion>& calls, void* connection, Side side, int memoryKinds)
      : calls_(calls), connection_(connection), side_(side), memoryKinds_(memoryKinds) {}
  ~PluginLane() override {
    if (side_ == Side::kSender) {
      calls_.tell(calls_.net.closeSend(connection_), "closeSend");
    } else {
      calls_.tell(calls_.net.closeReceive(connection_), "closeRecv");
    }
  }
  PluginLane(const PluginLane&) = delete;
  PluginLane& operator=(const PluginLane&) = delete;

  Result<Memory> enroll(std::span<std::byte> memory) override {
    Memory enrolled;
    TUTTI_TRY(calls_.enroll(connection_, memory, &enrolled.name));
    return enrolled;
  }
  Result<Memory> enrollGpu(const GpuRegion& region) override {
    Memory enrolled;
    TUTTI_TRY(calls_.enrollGpu(connection_, region, memoryKinds_, &enrolled.name));
    return enrolled;
  }
  void release(Memory memory) override {
    calls_.tell(calls_.net.deregisterMemory(connection_, memory.name), "deregMr");
  }

  Result<Request> post(std::span<std::byte> bytes, Memory memory) override {
    Request request;
    if (side_ == Side::kSender) {
      TUTTI_TRY(calls_.send(connection_, bytes, memory.name, &request.name));
    } else {
      TUTTI_TRY(calls_.receive(connection_, bytes, memory.name, &request.name));
    }
    return request;
  }

  Result<std::optional<size_t>> test(Request request) override {
    int isDone = 0;
    int size = 0;
    TUTTI_TRY(calls_.check(calls_.net.test(request.name, &isDone, &size), "test"));
    if (isDone == 0) return std::optional<size_t>();
    if (size < 0) return calls_.failure(fmt::format("test gives a size of {}", size));
    return std::optional<size_t>(static_cast<size_t>(size));
  }

  Result<Request> flush(std::span<std::byte> bytes, Memory memory) override {
    Request request;
    if (side_ == Side::kSender || calls_.net.flush == nullptr) return request;
    void* data = bytes.data();
    auto size = static_cast<int>(bytes.size());
    TUTTI_TRY(calls_.check(
        calls_.net.flush(connection_, 1, &data, &size, &memory.name, &request.name), "iflush"));
    return request;
  }

  CallNames callNames() const override {
    const bool sends = side_ == Side::kSender;
    return {.enroll = "regMr",
            .release = "deregMr",
            .post = sends ? "isend" : "irecv",
            .test = "test",
            .flush = "iflush",
            .close = sends ? "closeSend" : "closeRecv"};
  }

 private:
  const Calls<kVersion>& calls_;
  void* const connection_;
  const Side side_;
  const int memoryKinds_;  // of its adapter
};

template <int kVersion>
class PluginListener final : public LaneListener {
 public:
  PluginListener(const Calls<kVersion>& calls, int memoryKinds)
      : calls_(calls), memoryKinds_(memoryKinds) {}
  ~PluginListener() override {
    if (listener_ == nullptr) return;
    const ForeignCall call(calls_.subject(), "closeListen");
    calls_.tell(calls_.net.closeListen(listener_), "closeListen");
  }
  PluginListener(const PluginListener&) = delete;
  PluginListener& operator=(const PluginListener&) = delete;

  Status listen(const Way& way) {
    TUTTI_TRY(calls_.listen(way, handle_.data(), &listener_));
    if (listener_ != nullptr) return {};
    return calls_.failure("listen gives no listener");
  }
  const LaneHandle& handle() const override { return handle_; }
  Result<std::unique_ptr<Lane>> accept() override {
    void* connection = nullptr;
    TUTTI_TRY(calls_.accept(listener_, &connection));
    std::unique_ptr<Lane> lane;
    if (connection != nullptr)
      lane =
          std::make_unique<PluginLane<kVersion>>(calls_, connection, Side::kReceiver, memoryKinds_);
    return lane;
  }

 private:
  const Calls<kVersion>& calls_;
  const int memoryKinds_;
  alignas(16) LaneHandle handle_{};
  void* listener_ = nullptr;
};
static_assert(sizeof(LaneHandle) >= abi::kHandleBytes);

// A plug-in may keep its state of connecting in the handle.
template <int kVersion>
class PluginDialer final : public LaneDialer {
 public:
  struct Device {
    Way way;
    int memoryKinds = 0;
  };
  PluginDialer(const Calls<kVersion>& calls, const Device& device, const LaneHandle& handle)
      : calls_(calls), device_(device), handle_(handle) {}
  Result<std::unique_ptr<Lane>> connect() override {
    void* connection = nullptr;
    TUTTI_TRY(calls_.connect(device_.way, handle_.data(), &connection));
    std::unique_ptr<Lane> lane;
    if (connection != nullptr)
      lane = std::make_unique<PluginLane<kVersion>>(calls_, connection, Side::kSender,
                                                    device_.memoryKinds);
    return lane;
  }

 private:
  const Calls<kVersion>& calls_;
  const Device device_;
  alignas(16) LaneHandle handle_;
};

template <int kVersion>
class PluginFabric final : public Fabric {
 public:
  explicit PluginFabric(const PluginLibrary& library) : calls_(library) {
    caps_.name = nameOf(library);
    caps_.library = calls_.subject();
    caps_.description = fmt::format("plug-in {}, version {}", library.source, kVersion);
  }
  ~PluginFabric() override {
    if constexpr (kVersion == 11) {
      if (calls_.net.tail.finalize == nullptr) return;
      const ForeignCall call(calls_.subject(), "finalize");
      for (const auto& [trafficClass, context] : contexts_)
        calls_.tell(calls_.net.tail.finalize(context), "finalize");
    }
  }
  PluginFabric(const PluginFabric&) = delete;
  PluginFabric& operator=(const PluginFabric&) = delete;

  Status open(uint64_t process, int trafficClass) {
    process_ = process;
    TUTTI_TRY_ASSIGN(contexts_[contextKey(trafficClass)], calls_.init(process, trafficClass));
    TUTTI_TRY_ASSIGN(adapters_, findAdapters<kVersion>(calls_, [this](const auto& properties) {
                       return take(properties);
                     }));
    caps_.deviceCount = adapters_.numbers.size();
    if (std::ranges::none_of(caps_.adapters, &Adapter::canReachGpus)) caps_.adapters.clear();
    caps_.description += adapters_.description;
    if (caps_.maxMessageBytes >= kMinMessageBytes) return {};
    return calls_.failure(fmt::format("its messages hold {} bytes, at least {} are needed",
                                      caps_.maxMessageBytes, kMinMessageBytes));
  }

  const Caps& caps() const override { return caps_; }

  Result<std::unique_ptr<LaneListener>> listen(const LanePlace& place) override {
    auto listener = std::make_unique<PluginListener<kVersion>>(calls_, memoryKinds_[place.device]);
    TUTTI_TRY_ASSIGN(const Way way, wayOf(place));
    TUTTI_TRY(listener->listen(way));
    return std::unique_ptr<LaneListener>(std::move(listener));
  }

  Result<std::unique_ptr<LaneDialer>> dial(const LanePlace& place,
                                           const LaneHandle& handle) override {
    TUTTI_TRY_ASSIGN(const Way way, wayOf(place));
    return std::unique_ptr<LaneDialer>(std::make_unique<PluginDialer<kVersion>>(
        calls_,
        typename PluginDialer<kVersion>::Device{.way = way,
                                                .memoryKinds = memoryKinds_[place.device]},
        handle));
  }

 private:
  // Before 11 a plug-in is initialised once a process, whatever is asked of its connections.
  static int contextKey(int trafficClass) {
    return kVersion == 11 ? trafficClass : kNoTrafficClass;
  }

  Result<Way> wayOf(const LanePlace& place) {
    Way way{.device = adapters_.numbers[place.device], .trafficClass = place.trafficClass};
    const int key = contextKey(place.trafficClass);
    const ForeignCall call(calls_.subject(), "init");  // what another thread may be at
    const std::lock_guard lock(mutex_);
    auto context = contexts_.find(key);
    if (context == contexts_.end()) {
      TUTTI_TRY_ASSIGN(void* const made, calls_.init(process_ + contexts_.size(), key));
      context = contexts_.emplace(key, made).first;
    }
    way.context = context->second;
    return way;
  }

  bool take(const typename abi::Types<kVersion>::Properties& properties) {
    if ((properties.memoryKinds & abi::kHostMemory) == 0) return false;
    if constexpr (kVersion >= 7) {
      if (properties.deviceType != abi::kHostDevice) return false;
    }
    if constexpr (kVersion >= 9) {
      if (properties.maxPointToPointBytes != 0)
        caps_.maxMessageBytes = std::min(caps_.maxMessageBytes, properties.maxPointToPointBytes);
    }
    memoryKinds_.push_back(properties.memoryKinds);
    caps_.adapters.push_back({.name = properties.name != nullptr ? properties.name : "?",
                              .place = properties.pciPath != nullptr ? properties.pciPath : "",
                              .takesGpuMemory = (properties.memoryKinds & abi::kGpuMemory) != 0,
                              .takesDmaBuffers = (properties.memoryKinds & abi::kDmaBuffers) != 0 &&
                                                 calls_.net.registerDmaBuffer != nullptr});
    return true;
  }

  const Calls<kVersion> calls_;
  Caps caps_;
  Adapters adapters_;
  std::vector<int> memoryKinds_;  // of each
  uint64_t process_ = 0;
  std::mutex mutex_;               // guards contexts_
  std::map<int, void*> contexts_;  // by traffic class
};

}  // namespace

Result<PluginLibrary> load(const std::string& entry) {
  const ForeignCall call(fmt::format("NCCL_NET_PLUGIN={}", entry), "dlopen");
  return findPlugin({.setting = "NCCL_NET_PLUGIN",
                     .kind = kFileKind,
                     .value = entry,
                     .symbolsNewestFirst = kNewestFirst,
                     .newest = kNewest});
}

Result<std::unique_ptr<Fabric>> open(const PluginLibrary& library, uint64_t process,
                                     int trafficClass) {
  return forVersion(library.version, [&]<int kVersion>() -> Result<std::unique_ptr<Fabric>> {
    auto fabric = std::make_unique<PluginFabric<kVersion>>(library);
    TUTTI_TRY(fabric->open(process, trafficClass));
    return std::unique_ptr<Fabric>(std::move(fabric));
  });
}

}  // namespace tutti::net::plugin
