#include "net/held_lane.h"

#include "net/queued_lane.h"

namespace tutti::net {
namespace {

class DirectLane final : public HeldLane {
 public:
  explicit DirectLane(std::unique_ptr<Lane> lane) : lane_(std::move(lane)) {}

  Memory enroll(std::span<std::byte> memory) override { return keep(lane_->enroll(memory)); }
  Memory enrollGpu(const GpuRegion& region) override { return keep(lane_->enrollGpu(region)); }
  Result<Progress> isKnown(Memory memory) override {
    const Result<Memory>& known = answerOf(memory);
    if (!known.ok()) return known.status().clone();
    return Progress::kDone;
  }
  void release(Memory memory, Keeper /*keeper*/) override {
    const std::unique_ptr<Result<Memory>> known(&answerOf(memory));
    if (known->ok()) lane_->release(**known);
  }

  Result<Request> post(std::span<std::byte> bytes, Memory memory) override {
    Result<Memory>& known = answerOf(memory);
    if (!known.ok()) return known.status().clone();
    Result<Request> posted = lane_->post(bytes, *known);
    if (posted.ok() && !*posted) ++rounds_;
    return posted;
  }
  Result<Request> flush(std::span<std::byte> bytes, Memory memory) override {
    Result<Memory>& known = answerOf(memory);
    if (!known.ok()) return known.status().clone();
    return lane_->flush(bytes, *known);
  }
  Result<std::optional<size_t>> test(Request request) override {
    ++rounds_;
    return lane_->test(request);
  }
  uint64_t rounds() const override { return rounds_; }

  void stop() override {}
  void beginClosing(Keeper /*keeper*/) override { lane_.reset(); }
  bool awaitClosed() override { return true; }

 private:
  // What the lane has said of memory is what it is called.
  static Memory keep(Result<Memory> answer) { return {new Result<Memory>(std::move(answer))}; }
  static Result<Memory>& answerOf(Memory memory) {
    return *static_cast<Result<Memory>*>(memory.name);
  }

  std::unique_ptr<Lane> lane_;
  uint64_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<HeldLane> holdLane(std::unique_ptr<Lane> lane, std::shared_ptr<LaneThread> thread) {
  if (thread == nullptr) return std::make_unique<DirectLane>(std::move(lane));
  return std::make_unique<QueuedLane>(std::move(lane), std::move(thread));
}

}  // namespace tutti::net
