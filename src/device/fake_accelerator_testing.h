// Tests only: a GPU of ordinary memory behind the Accelerator seam. Memory is files, which really
// map into several places. Kernels are noted, not run, but for stamps. Streams and events are
// numbers, of which the fake knows what comes before what, as a driver does, captures included. Any
// call can fail.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/accelerator_testing.h"
#include "wire/gpu_stamp.h"

namespace tutti::device {

// A kernel's launch, as it was asked for.
struct NotedLaunch {
  std::string kernel;
  uint32_t blocks = 0;
  uint32_t threads = 0;
  bool startsEarly = false;
  void* stream = nullptr;
  uint64_t capture = 0;        // of which it became part; 0: it runs
  std::set<uint64_t> after{};  // numbers of the launches that have ended when it begins
  // Of the one that is the last thing ahead of it on its stream; 0: something else is.
  uint64_t behind = 0;
  std::vector<std::byte> argument{};
};

// Thread-safe, but for the fields that tests set before they let others at it.
class FakeAccelerator : public EmptyAccelerator {
 public:
  // Of memory that another made.
  enum class Copies : uint8_t { kRight, kWrongFromPeers, kLostToPeers };
  Copies copies = Copies::kRight;
  size_t shortBy = 0;  // what makeMemory() gives less than was asked for
  std::function<size_t(std::string_view kernel)> argumentBytes;  // of a launch, to keep

  std::function<void(const KernelLaunch&)> onLaunch;  // in the call, which may take long

  uint32_t multiprocessorCount = 132;

  bool doesNothing = false;  // of launches and events; not even notes

  std::atomic<int64_t> timerOffset = 0;  // of its timer to the host's clock

  // From its `number`-th call on, counted from 1 and from now, `call` fails: once, or for good as
  // with an error of a context that stays.
  void failAt(std::string_view call, int number = 1, bool isSticky = false) {
    const std::lock_guard lock(mutex_);
    failing_ = call;
    callsLeft_ = number;
    isSticky_ = isSticky;
    hasFailed_ = false;
  }
  void mend() { failAt({}, 0); }
  bool hasFailed() const { return hasFailed_; }  // since failAt()

  // Launches from here on run until finish().
  void hold() {
    const std::lock_guard lock(mutex_);
    ended_ = launches_.size();
  }
  // The first so many launches have ended; all, and those to come at once.
  void finish(uint64_t launches = kAll) {
    const std::lock_guard lock(mutex_);
    ended_ = launches;
    while (!stamps_.empty() && stamps_.begin()->first <= ended_)
      stampNow(stamps_.extract(stamps_.begin()).mapped());
  }
  void beginCapture(void* stream, uint64_t id) {
    const std::lock_guard lock(mutex_);
    streams_[stream] = {.capture = id};
  }
  // Of all streams that are part of it. The graph is there until destroyGraph().
  void endCapture(uint64_t id) {
    bool isBroken = false;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [handle, stream] : streams_)
        isBroken |= stream.capture == id && stream.isBroken;
      std::erase_if(streams_, [id](const auto& one) { return one.second.capture == id; });
    }
    if (isBroken) destroyGraph(id);
  }
  // And all that was made of it.
  void destroyGraph(uint64_t id) {
    std::vector<std::shared_ptr<const void>> shared;
    const std::lock_guard lock(mutex_);
    shared.swap(shared_[id]);
  }
  // Its streams take nothing more until endCapture(), and there is no graph.
  void breakCapture(uint64_t id) {
    const std::lock_guard lock(mutex_);
    for (auto& [handle, stream] : streams_) stream.isBroken |= stream.capture == id;
  }
  // Puts the capture's launches on the stream, as their graph does; the noted ones' numbers, and
  // theirs. What of it may start early does not.
  std::map<uint64_t, uint64_t> replay(uint64_t capture, void* stream) {
    const std::lock_guard lock(mutex_);
    const std::set<uint64_t> before = streams_[stream].before;
    std::map<uint64_t, uint64_t> numbers;
    for (uint64_t number = 1, noted = launches_.size(); number <= noted; ++number) {
      if (launches_[number - 1].capture != capture) continue;
      NotedLaunch again = launches_[number - 1];
      again.stream = stream;
      again.capture = again.behind = 0;
      again.startsEarly = false;
      again.after = before;
      for (const uint64_t one : launches_[number - 1].after) addReplayed(one, numbers, again.after);
      launches_.push_back(std::move(again));
      numbers[number] = launches_.size();
    }
    for (const auto& [number, copy] : numbers) streams_[stream].before.insert(copy);
    streams_[stream].last = 0;
    for (const GraphEvent& record : graphRecords_) {
      if (record.capture != capture) continue;
      std::set<uint64_t> reached = before;
      for (const uint64_t one : record.before) addReplayed(one, numbers, reached);
      events_[record.event] = {.before = std::move(reached)};
    }
    return numbers;
  }
  void loseStream(void* stream) {
    const std::lock_guard lock(mutex_);
    lost_.insert(stream);
  }
  // The stream goes; what it has still runs. Another gets its handle.
  void replaceStream(void* stream) {
    const std::lock_guard lock(mutex_);
    ids_[stream] = ++lastHandle_;
    streams_[stream] = {};
  }
  std::vector<NotedLaunch> launches() const {
    const std::lock_guard lock(mutex_);
    return launches_;
  }
  // Numbers, from 1, of the launches that end before what is put on the stream now.
  std::set<uint64_t> before(void* stream) {
    const std::lock_guard lock(mutex_);
    return streams_[stream].before;
  }
  // Whatever was made and is still there.
  size_t alive() const { return *alive_; }

  Result<std::unique_ptr<DeviceMemory>> makeMemory(size_t bytes) override {
    TUTTI_TRY(enter("makeMemory"));
    UniqueFd file(::memfd_create("fake-gpu", MFD_CLOEXEC));
    const size_t given = bytes - shortBy;
    if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(given)) != 0)
      return systemError("memfd_create", "fake-gpu", errno);
    return map(std::move(file), given, false);
  }
  Result<std::unique_ptr<DeviceMemory>> importMemory(UniqueFd handle, size_t bytes) override {
    TUTTI_TRY(enter("importMemory"));
    return map(std::move(handle), bytes, true);
  }
  Result<std::unique_ptr<SharedWords>> makeWords(size_t bytes) override {
    TUTTI_TRY(enter("makeWords"));
    dropUnused();
    return std::unique_ptr<SharedWords>(std::make_unique<Words>(alive_, bytes));
  }
  Status copy(void* to, const void* from, size_t bytes) override {
    TUTTI_TRY(enter("copy"));
    if (copies == Copies::kLostToPeers && isImported(to)) return {};
    std::memcpy(to, from, bytes);
    if (copies == Copies::kWrongFromPeers && isImported(from)) static_cast<char*>(to)[0] ^= 1;
    return {};
  }
  Result<MemoryPlace> placeOf(const void*) override { return MemoryPlace::kThisDevice; }

  Result<const Kernel*> findKernel(std::span<const unsigned char>, const char* name,
                                   uint32_t) override {
    TUTTI_TRY(enter("findKernel"));
    const std::lock_guard lock(mutex_);
    return reinterpret_cast<const Kernel*>(&*kernels_.insert(name).first);
  }
  uint32_t multiprocessors() const override { return multiprocessorCount; }
  int32_t capability() const override { return 90; }
  uint32_t sharedBytesPerBlock() const override { return 227 << 10; }
  // By threads and registers, as the kernels' launch bounds have them.
  static uint32_t blocksPerMultiprocessor(std::string_view kernel) {
    if (kernel == "tuttiTransfers") return 3;
    if (kernel == "tuttiFoldTransfers" || kernel == "tuttiMoveProgram") return 2;
    return kernel == "tuttiProgramTransfers" ? 4 : 1;
  }
  Result<uint32_t> blocksPerMultiprocessor(const Kernel& kernel, uint32_t, uint32_t) override {
    TUTTI_TRY(enter("blocksPerMultiprocessor"));
    return blocksPerMultiprocessor(*reinterpret_cast<const std::string*>(&kernel));
  }
  Status launch(const KernelLaunch& launch, void* stream) override {
    if (doesNothing) return {};
    if (onLaunch) onLaunch(launch);
    TUTTI_TRY(enter("launch", stream));
    const std::lock_guard lock(mutex_);
    Stream& on = streams_[stream];
    const auto& name = *reinterpret_cast<const std::string*>(launch.kernel);
    const auto* argument = static_cast<const std::byte*>(launch.argument);
    launches_.push_back({.kernel = name,
                         .blocks = launch.blocks,
                         .threads = launch.threads,
                         .startsEarly = launch.startsEarly,
                         .stream = stream,
                         .capture = on.capture,
                         .after = on.before,
                         .behind = on.last});
    if (argumentBytes) launches_.back().argument.assign(argument, argument + argumentBytes(name));
    on.before.insert(launches_.size());
    on.last = launches_.size();
    if (name == "tuttiStamp" && on.capture == 0) stamp(argument);
    return {};
  }

  Result<void*> createUrgentStream() override {
    TUTTI_TRY(enter("createUrgentStream"));
    ++*alive_;
    return reinterpret_cast<void*>(++lastHandle_);
  }
  Result<void*> createStream() override {
    TUTTI_TRY(enter("createStream"));
    ++*alive_;
    return reinterpret_cast<void*>(++lastHandle_);
  }
  void destroyStream(void* stream) override { *alive_ -= stream != nullptr ? 1 : 0; }
  Result<uint64_t> streamId(void* stream) override {
    if (doesNothing) return uint64_t{1};
    TUTTI_TRY(enter("streamId", stream));
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(stream);
    return found == ids_.end() ? reinterpret_cast<uintptr_t>(stream) : found->second;
  }
  Result<Event*> createEvent() override {
    TUTTI_TRY(enter("createEvent"));
    ++*alive_;
    return reinterpret_cast<Event*>(++lastHandle_);
  }
  void destroyEvent(Event* event) override { *alive_ -= event != nullptr ? 1 : 0; }
  Status record(Event* event, void* stream) override {
    if (doesNothing) return {};
    TUTTI_TRY(enter("record", stream));
    const std::lock_guard lock(mutex_);
    events_[event] = streams_[stream];
    return {};
  }
  // An event of a capture makes the stream part of it; one from outside has no place in one.
  Status wait(void* stream, Event* event) override {
    TUTTI_TRY(enter("wait", stream));
    const std::lock_guard lock(mutex_);
    const auto recorded = events_.find(event);
    if (recorded == events_.end()) return {};
    Stream& waiting = streams_[stream];
    if (waiting.capture != 0 && waiting.capture != recorded->second.capture)
      return error("wait: the capture of the stream knows nothing of the event");
    if (waiting.capture == 0 && recorded->second.capture != 0) {
      if (!isCaptured(recorded->second.capture)) return error("wait: the event's capture is over");
      waiting = {.capture = recorded->second.capture};
    }
    waiting.before.insert(recorded->second.before.begin(), recorded->second.before.end());
    waiting.last = 0;
    return {};
  }
  Result<bool> isDone(Event* event) override {
    if (doesNothing) return true;
    TUTTI_TRY(enter("isDone"));
    const std::lock_guard lock(mutex_);
    const Stream& recorded = events_[event];
    if (recorded.capture != 0) return error("isDone: the event is of a capture");
    return recorded.before.empty() || *recorded.before.rbegin() <= ended_;
  }
  Result<Capture> captureOf(void* stream) override {
    if (doesNothing) return Capture{};
    TUTTI_TRY(enter("captureOf"));
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return Capture{};
    const uint64_t id = found->second.capture;
    const bool isBroken = found->second.isBroken;
    return Capture{.isActive = id != 0 && !isBroken, .isBroken = isBroken, .id = id};
  }
  Status waitInGraph(void* stream, Event* event) override {
    TUTTI_TRY(enter("waitInGraph", stream));
    const std::lock_guard lock(mutex_);
    Stream& on = streams_[stream];
    if (on.capture == 0) return error("waitInGraph: the stream is not captured");
    on.before.insert(kWaits + graphWaits_.size());
    on.last = 0;
    graphWaits_.push_back({.capture = on.capture, .event = event});
    return {};
  }
  Status recordInGraph(Event* event, void* stream, RecordInGraph& place) override {
    TUTTI_TRY(enter("recordInGraph", stream));
    const std::lock_guard lock(mutex_);
    const Stream& on = streams_[stream];
    if (on.capture == 0) return error("recordInGraph: the stream is not captured");
    if (place.node == nullptr) {
      graphRecords_.push_back({.capture = on.capture, .event = event});
      place.node = reinterpret_cast<void*>(graphRecords_.size());
    }
    GraphEvent& record = graphRecords_[reinterpret_cast<uintptr_t>(place.node) - 1];
    if (record.capture != on.capture || record.event != event)
      return error("recordInGraph: the record is another's");
    record.before = on.before;
    return {};
  }
  Status shareWithGraph(void* stream, std::shared_ptr<const void> object) override {
    TUTTI_TRY(enter("shareWithGraph", stream));
    const std::lock_guard lock(mutex_);
    const uint64_t capture = streams_[stream].capture;
    if (capture == 0) return error("shareWithGraph: the stream is not captured");
    shared_[capture].push_back(std::move(object));
    return {};
  }
  // Nodes of a graph that wait, and that record.
  std::pair<size_t, size_t> eventNodes(uint64_t capture) const {
    const std::lock_guard lock(mutex_);
    const auto isIts = [capture](const GraphEvent& one) { return one.capture == capture; };
    return {static_cast<size_t>(std::ranges::count_if(graphWaits_, isIts)),
            static_cast<size_t>(std::ranges::count_if(graphRecords_, isIts))};
  }

 private:
  static constexpr uint64_t kAll = ~uint64_t{0};
  // From here on what comes before something is no launch, but an element of graphWaits_.
  static constexpr uint64_t kWaits = uint64_t{1} << 62;
  struct GraphEvent {
    uint64_t capture = 0;
    Event* event = nullptr;
    std::set<uint64_t> before{};  // a record: of the captured launches
  };
  // What of a stream's work, or before an event, is known; what a capture holds begins anew.
  struct Stream {
    uint64_t capture = 0;
    bool isBroken = false;  // the capture
    std::set<uint64_t> before{};
    uint64_t last = 0;  // the number of the launch that nothing has followed
  };
  using Count = std::shared_ptr<std::atomic<size_t>>;  // by the fake and what it made

  class Memory final : public DeviceMemory {
   public:
    Memory(FakeAccelerator& owner, UniqueFd file, void* address, size_t bytes)
        : owner_(owner),
          alive_(owner.alive_),
          file_(std::move(file)),
          address_(address),
          bytes_(bytes) {
      ++*alive_;
    }
    ~Memory() override {
      ::munmap(address_, bytes_);
      --*alive_;
    }
    void* address() const override { return address_; }
    size_t bytes() const override { return bytes_; }
    Result<UniqueFd> exportHandle() const override {
      TUTTI_TRY(owner_.enter("exportHandle"));
      return UniqueFd(::dup(file_.get()));
    }

   private:
    FakeAccelerator& owner_;  // not in the end: what is kept for good outlives its fields
    const Count alive_;
    const UniqueFd file_;
    void* const address_;
    const size_t bytes_;
  };
  class Words final : public SharedWords {
   public:
    Words(Count alive, size_t bytes) : alive_(std::move(alive)), lines_((bytes + 63) / 64) {
      ++*alive_;
    }
    ~Words() override { --*alive_; }
    void* hostAddress() const override { return const_cast<Line*>(lines_.data()); }
    void* deviceAddress() const override { return hostAddress(); }

   private:
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    const Count alive_;
    std::vector<Line> lines_;
  };

  void stamp(const std::byte* argument) {
    wire::GpuStamp stamp;
    std::memcpy(&stamp, argument, sizeof stamp);
    if (stamp.word == nullptr) return;
    if (launches_.size() <= ended_) return stampNow(stamp.word);
    stamps_[launches_.size()] = stamp.word;
  }
  void stampNow(uint64_t* word) const {
    const auto now = static_cast<int64_t>(steadyClock().now());
    std::atomic_ref(*word).store(static_cast<uint64_t>(now + timerOffset));
  }
  static Status error(std::string text) {
    return Status(Code::kUnhandledCudaError, std::move(text));
  }
  Status enter(std::string_view call, void* stream = nullptr) {
    const std::lock_guard lock(mutex_);
    if (stream != nullptr && lost_.contains(stream))
      return error(std::string(call) + ": CUDA_ERROR_INVALID_HANDLE");
    if (const auto known = streams_.find(stream);
        stream != nullptr && known != streams_.end() && known->second.isBroken)
      return error(std::string(call) + ": CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    const bool isStuck = hasFailed_ && isSticky_;
    if (!isStuck && (call != failing_ || callsLeft_ == 0 || --callsLeft_ != 0)) return {};
    hasFailed_ = true;
    return error(std::string(call) + ": CUDA_ERROR_OF_THE_TEST");
  }
  Result<std::unique_ptr<DeviceMemory>> map(UniqueFd file, size_t bytes, bool isImport) {
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) return systemError("mmap", "fake-gpu", errno);
    const std::lock_guard lock(mutex_);
    imports_.erase(static_cast<const char*>(address));
    if (isImport) imports_[static_cast<const char*>(address)] = bytes;
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<Memory>(*this, std::move(file), address, bytes));
  }
  bool isImported(const void* address) const {
    const std::lock_guard lock(mutex_);
    const auto* byte = static_cast<const char*>(address);
    const auto above = imports_.upper_bound(byte);
    return above != imports_.begin() && byte < std::prev(above)->first + std::prev(above)->second;
  }
  // What comes before something of a graph, where `numbers` are those of the replay so far.
  void addReplayed(uint64_t one, const std::map<uint64_t, uint64_t>& numbers,
                   std::set<uint64_t>& before) {
    if (one < kWaits) {
      before.insert(numbers.at(one));
      return;
    }
    const std::set<uint64_t>& reached = events_[graphWaits_[one - kWaits].event].before;
    before.insert(reached.begin(), reached.end());
  }
  bool isCaptured(uint64_t capture) const {
    return std::ranges::any_of(
        streams_, [capture](const auto& one) { return one.second.capture == capture; });
  }

  mutable std::mutex mutex_;  // guards the fields below
  std::string failing_;
  int callsLeft_ = 0;
  bool isSticky_ = false;
  std::atomic<bool> hasFailed_ = false;
  uint64_t ended_ = kAll;
  std::vector<NotedLaunch> launches_;
  std::map<uint64_t, uint64_t*> stamps_;  // to come, by the numbers of their launches
  std::map<void*, Stream> streams_;
  std::map<Event*, Stream> events_;
  std::vector<GraphEvent> graphWaits_;
  std::vector<GraphEvent> graphRecords_;
  std::map<uint64_t, std::vector<std::shared_ptr<const void>>> shared_;  // by capture
  std::set<void*> lost_;
  std::map<void*, uint64_t> ids_;  // of streams that have been replaced
  std::set<std::string> kernels_;
  std::map<const char*, size_t> imports_;

  std::atomic<uintptr_t> lastHandle_ = 0x1000;
  const Count alive_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace tutti::device
