// Both ends over lanes and a control connection in memory, which take, delay and refuse what a seed
// says.
#include "net/fabric_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/rng.h"
#include "device/device.h"
#include "device/registry.h"

namespace tutti::net {
namespace {

using testing::HasSubstr;

// What both ends of a lane share. A send is matched with the oldest receive.
struct VirtualWire {
  struct Posted {
    std::span<std::byte> bytes;
    std::optional<size_t> moved;
    bool isOnGpu = false;             // a receive: to be seen there after a flush only
    std::vector<std::byte> unseen{};  // then
  };
  SeededRng& rng;
  std::deque<Posted> sends{}, receives{};  // all that were ever posted: requests are their places
  size_t matched = 0;
  bool isBroken = false;
  bool isSilent = false;  // one end does not see that the other goes
  bool isStill = false;   // nothing moves any more

  void match() {
    while (!isStill && matched < std::min(sends.size(), receives.size()) && rng.below(2) == 0) {
      Posted& from = sends[matched];
      Posted& to = receives[matched++];
      EXPECT_LE(from.bytes.size(), to.bytes.size());
      if (to.isOnGpu) {
        to.unseen.assign(from.bytes.begin(), from.bytes.end());
      } else {
        std::ranges::copy(from.bytes, to.bytes.begin());
      }
      from.moved = to.moved = from.bytes.size();
    }
  }
};

class VirtualLane final : public Lane {
 public:
  VirtualLane(std::shared_ptr<VirtualWire> wire, bool isSender)
      : wire_(std::move(wire)), posted_(isSender ? wire_->sends : wire_->receives) {}
  // Nothing of its memory is touched afterwards.
  ~VirtualLane() override {
    wire_->isBroken = !wire_->isSilent;
    EXPECT_EQ(enrolled_, 0);
  }

  Result<Memory> enroll(std::span<std::byte> memory) override {
    if (memory.size() > mostBytes) return Status(Code::kSystemError, "too much memory to lock");
    ++enrolled_;
    if (isLogged) log.push_back(memory);
    return Memory{this};
  }
  Result<Memory> enrollGpu(const GpuRegion& region) override {
    if (refusesGpus) return Status(Code::kSystemError, "the lane takes no such memory");
    gpu_ = region.bytes;
    return enroll({});
  }
  Result<Request> flush(std::span<std::byte> bytes, Memory memory) override {
    EXPECT_EQ(memory.name, this);
    EXPECT_TRUE(isOnGpu(bytes));
    for (VirtualWire::Posted& each : posted_) {
      std::ranges::copy(each.unseen, each.bytes.begin());
      each.unseen.clear();
    }
    ++underWay_;
    flush_.moved = 0;
    return Request{&flush_};
  }
  void release(Memory memory) override {
    EXPECT_EQ(memory.name, this);
    --enrolled_;
  }
  Result<Request> post(std::span<std::byte> bytes, Memory memory) override {
    EXPECT_EQ(memory.name, this);
    if (wire_->isBroken) return Status(Code::kSystemError, "the lane is broken");
    if (underWay_ == kMaxRequests || wire_->rng.below(4) == 0) return Request{};
    ++underWay_;
    posted_.push_back({.bytes = bytes, .moved = {}, .isOnGpu = isOnGpu(bytes)});
    return Request{&posted_.back()};
  }
  Result<std::optional<size_t>> test(Request request) override {
    if (wire_->isBroken) return Status(Code::kSystemError, "the lane is broken");
    wire_->match();
    if (request.name == &flush_ && wire_->rng.below(3) == 0) return std::optional<size_t>();
    const auto moved = static_cast<VirtualWire::Posted*>(request.name)->moved;
    if (moved) --underWay_;
    return moved;
  }

  bool refusesGpus = false;
  size_t mostBytes = SIZE_MAX;
  bool isLogged = false;
  std::vector<std::span<std::byte>> log{};  // what it was told of
  int enrolledCount() const { return enrolled_; }

 private:
  bool isOnGpu(std::span<const std::byte> bytes) const {
    return bytes.data() >= gpu_.data() && bytes.data() < gpu_.data() + gpu_.size();
  }

  const std::shared_ptr<VirtualWire> wire_;
  std::deque<VirtualWire::Posted>& posted_;
  std::span<std::byte> gpu_;
  VirtualWire::Posted flush_;
  size_t underWay_ = 0;
  int enrolled_ = 0;
};

// One end of a control connection: messages lie in the other's inbox at once.
struct Inbox {
  struct Message {
    Label label;
    std::vector<std::byte> payload;
  };
  std::deque<Message> messages;
  bool isClosed = false;
};

class VirtualControl final : public Connection {
 public:
  VirtualControl(std::shared_ptr<Inbox> in, std::shared_ptr<Inbox> out)
      : in_(std::move(in)), out_(std::move(out)) {}
  ~VirtualControl() override { out_->isClosed = true; }
  Progress send(const Label& label, std::span<const std::byte> payload) override {
    out_->messages.push_back({label, {payload.begin(), payload.end()}});
    ++sent_;
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override { return Progress::kDone; }
  uint64_t sentCount() const override { return sent_; }
  Result<Progress> receiveLabel(Label& label) override {
    if (in_->messages.empty()) {
      if (in_->isClosed) return Status(Code::kRemoteError, "the control connection was closed");
      return Progress::kIdle;
    }
    label = in_->messages.front().label;
    return Progress::kDone;
  }
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    EXPECT_EQ(payload.size(), in_->messages.front().payload.size());
    std::ranges::copy(in_->messages.front().payload, payload.begin());
    in_->messages.pop_front();
    return Progress::kDone;
  }

 private:
  const std::shared_ptr<Inbox> in_, out_;
  uint64_t sent_ = 0;
};

class FabricLink : public testing::TestWithParam<int> {
 protected:
  void connect(size_t payloadLanes, size_t maxMessageBytes) {
    LaneSet here{.lanes = {},
                 .devices = {},
                 .maxMessageBytes = maxMessageBytes,
                 .peer = "rank 1",
                 .segments = segments_};
    LaneSet there{.lanes = {}, .devices = {}, .maxMessageBytes = maxMessageBytes, .peer = "rank 0"};
    for (size_t i = 0; i < 1 + payloadLanes; ++i) {
      wires_.push_back(std::make_shared<VirtualWire>(VirtualWire{.rng = rng_}));
      auto sending = std::make_unique<VirtualLane>(wires_.back(), true);
      lastOfSender_ = sending.get();
      here.lanes.push_back(std::move(sending));
      auto receiving = std::make_unique<VirtualLane>(wires_.back(), false);
      last_ = receiving.get();
      there.lanes.push_back(std::move(receiving));
      for (LaneSet* each : {&here, &there}) each->devices.push_back(i == 0 ? 0 : i - 1);
    }
    auto a = std::make_shared<Inbox>();
    auto b = std::make_shared<Inbox>();
    sender_ = FabricSender::open(std::make_unique<VirtualControl>(a, b), std::move(here)).value();
    receiver_ =
        FabricReceiver::open(std::make_unique<VirtualControl>(b, a), std::move(there)).value();
  }

  // Messages of any size, short and long, each with its number for a signature.
  void makeMessages(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      messages_.emplace_back(rng_.below(3) == 0 ? rng_.below(200'000) : rng_.below(5000));
      for (std::byte& each : messages_.back()) each = static_cast<std::byte>(rng_.next());
    }
  }

  Status stepSender() {
    while (taken_ < messages_.size()) {
      const auto& message = messages_[taken_];
      const Label label{.bytes = static_cast<uint32_t>(message.size()),
                        .signature = static_cast<uint32_t>(taken_)};
      if (sender_->send(label, message) == Progress::kIdle) break;
      ++taken_;
    }
    if (taken_ == messages_.size() && !hasLeft_) {
      const Label notice{.bytes = kNotice | static_cast<uint32_t>(farewell_.size()),
                         .signature = 9};
      EXPECT_EQ(sender_->send(notice, farewell_), Progress::kAdvanced);
      hasLeft_ = true;
    }
    return sender_->flush().takeStatus();
  }

  // True when the notice has come.
  Result<bool> stepReceiver() {
    if (!hasLabel_) {
      TUTTI_TRY_ASSIGN(const Progress progress, receiver_->receiveLabel(label_));
      if (progress == Progress::kIdle) return false;
      hasLabel_ = true;
      place_.resize(label_.bytes & ~kNotice);
    }
    const bool isOnGpu = !gpuMemory_.empty() && place_.size() > kLabelSlotBytes;
    const auto place = isOnGpu ? std::span(gpuMemory_).first(place_.size()) : std::span(place_);
    TUTTI_TRY_ASSIGN(const Progress progress, receiver_->receivePayload(place));
    if (progress == Progress::kIdle) return false;
    if (progress == Progress::kAdvanced) {  // never whole: the notice is next
      hasLabel_ = false;
      return false;
    }
    if (isOnGpu) std::ranges::copy(place, place_.begin());
    hasLabel_ = false;
    if ((label_.bytes & kNotice) != 0) {
      EXPECT_EQ(place_, farewell_);
      return true;
    }
    EXPECT_EQ(label_.signature, received_);
    EXPECT_EQ(place_, messages_[received_++]);
    return false;
  }

  void runToTheNotice() {
    bool isOver = false;
    for (int step = 0; step < 1'000'000 && !isOver; ++step) {
      if (rng_.below(2) == 0) {
        ASSERT_TRUE(stepSender().ok());
      } else {
        const auto over = stepReceiver();
        ASSERT_TRUE(over.ok()) << over.status().message();
        isOver = over.value();
      }
    }
    EXPECT_TRUE(isOver);
  }

  SeededRng rng_{static_cast<uint64_t>(GetParam())};
  std::vector<std::shared_ptr<VirtualWire>> wires_;
  std::vector<std::vector<std::byte>> messages_;
  const std::vector<std::byte> farewell_ = std::vector<std::byte>(30, std::byte{7});
  std::vector<std::byte> place_, gpuMemory_;
  VirtualLane* last_ = nullptr;  // the receiver's
  VirtualLane* lastOfSender_ = nullptr;
  device::SharedMemory* segments_ = nullptr;  // the sender's
  std::unique_ptr<Connection> sender_, receiver_;
  size_t taken_ = 0, received_ = 0;
  bool hasLeft_ = false, hasLabel_ = false;
  Label label_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, FabricLink, testing::Range(0, 40));

TEST_P(FabricLink, BringsAllMessagesInOrderAndThenTheNotice) {
  connect(1 + rng_.below(kMaxPayloadLanes), rng_.below(2) == 0 ? 10'000 : 1 << 30);
  makeMessages(40);
  runToTheNotice();
  EXPECT_EQ(received_, messages_.size());
  ASSERT_TRUE(stepSender().ok());
  EXPECT_EQ(sender_->sentCount(), messages_.size());
}

// What the lanes bring there is to be seen after their flush only.
TEST_P(FabricLink, ShowsAGpuWhatItReceived) {
  connect(1 + rng_.below(kMaxPayloadLanes), rng_.below(2) == 0 ? 10'000 : 1 << 30);
  makeMessages(20);
  gpuMemory_.resize(256 << 10);
  const std::vector<std::string> none(kMaxPayloadLanes);
  ASSERT_TRUE(receiver_->takeGpuMemory({.bytes = gpuMemory_, .obstacles = none}).ok());
  runToTheNotice();
  EXPECT_EQ(received_, messages_.size());
}

// All of its adapters or none; each gives back what it knew.
TEST_P(FabricLink, TakesNoMemoryThatOneOfItsAdaptersCannotReach) {
  connect(3, 1 << 30);
  gpuMemory_.resize(64 << 10);
  std::vector<std::string> obstacles(3);
  last_->refusesGpus = true;
  const Status refused = receiver_->takeGpuMemory({.bytes = gpuMemory_, .obstacles = obstacles});
  EXPECT_THAT(std::string(refused.message()), HasSubstr("takes no such memory"));
  last_->refusesGpus = false;
  obstacles[1] = "too far";
  const Status tooFar = receiver_->takeGpuMemory({.bytes = gpuMemory_, .obstacles = obstacles});
  EXPECT_EQ(std::string(tooFar.message()), "too far");
}

TEST_P(FabricLink, ThatBreaksOnOneLaneEndsBothSides) {
  connect(2, 1 << 30);
  makeMessages(40);
  const uint64_t breaksAt = rng_.below(200);
  Status ofSender, ofReceiver;
  for (uint64_t step = 0; step < 1'000'000 && (ofSender.ok() || ofReceiver.ok()); ++step) {
    if (step == breaksAt) wires_[rng_.below(3)]->isBroken = true;
    if (rng_.below(2) == 0 && ofSender.ok()) {
      ofSender = stepSender();
      Label label;
      if (ofSender.ok()) {
        ofSender = sender_->receiveLabel(label).takeStatus();
      } else {
        EXPECT_FALSE(sender_->receiveLabel(label).ok());  // as a pump asks after a failure
      }
      if (!ofSender.ok()) sender_.reset();
    } else if (ofReceiver.ok()) {
      Result<bool> isOver = stepReceiver();
      if (isOver.ok() && *isOver) return;  // all had been said when it broke
      ofReceiver = isOver.takeStatus();
      if (!ofReceiver.ok()) receiver_.reset();
    }
  }
  for (const Status* status : {&ofSender, &ofReceiver}) {
    const std::string text(status->message());
    EXPECT_THAT(text, testing::AnyOf(HasSubstr("the lane is broken"),
                                     HasSubstr("the control connection was closed")));
  }
}

// ---- memory of the program's --------------------------------------------------------------------

class FabricLinkFromSegments : public FabricLink {
 protected:
  FabricLinkFromSegments() { segments_ = host_->sharedMemory(); }
  ~FabricLinkFromSegments() override { sender_.reset(); }  // which holds some

  std::span<std::byte> allocate(size_t bytes) {
    return {static_cast<std::byte*>(host_->allocate(bytes).value()), bytes};
  }
  // One message from there, until it has arrived.
  void send(std::span<const std::byte> payload) {
    messages_.emplace_back(payload.begin(), payload.end());
    const Label label{.bytes = static_cast<uint32_t>(payload.size()),
                      .signature = static_cast<uint32_t>(taken_++)};
    ASSERT_EQ(sender_->send(label, payload), Progress::kAdvanced);
    for (int step = 0; step < 100'000 && received_ < taken_; ++step) {
      ASSERT_TRUE(sender_->flush().ok());
      ASSERT_TRUE(stepReceiver().ok());
    }
    ASSERT_EQ(received_, taken_);
    for (int step = 0; step < 1000 && sender_->sentCount() < taken_; ++step)
      ASSERT_TRUE(sender_->flush().ok());
    ASSERT_EQ(sender_->sentCount(), taken_);
  }

  const std::unique_ptr<device::Device> host_ =
      device::openDevice(device::DeviceKind::kHost).value();
};

INSTANTIATE_TEST_SUITE_P(Seeds, FabricLinkFromSegments, testing::Range(0, 5));

TEST_P(FabricLinkFromSegments, TellsItsLanesOfAWholeSegmentOnce) {
  connect(2, 1 << 30);
  lastOfSender_->isLogged = true;
  const std::span segment = allocate(1 << 20);
  for (std::byte& each : segment) each = static_cast<std::byte>(rng_.next());
  for (int i = 0; i < 10; ++i) send(segment.subspan(rng_.below(500'000), 100'000));
  ASSERT_EQ(lastOfSender_->log.size(), 1u);
  EXPECT_EQ(lastOfSender_->log[0].data(), segment.data());
  EXPECT_EQ(lastOfSender_->log[0].size(), segment.size());
}

// Nor does another lie where it lay as long as a lane knows it.
TEST_P(FabricLinkFromSegments, ForgetsSegmentsThatWereFreed) {
  connect(1, 1 << 30);
  const std::span first = allocate(100'000);
  send(first);
  const int known = lastOfSender_->enrolledCount();
  ASSERT_TRUE(host_->free(first.data()).ok());
  const std::span second = allocate(100'000);
  EXPECT_NE(second.data(), first.data());
  std::ranges::fill(second, std::byte{9});
  send(second);
  EXPECT_EQ(lastOfSender_->enrolledCount(), known) << "one came, one went";
}

TEST_P(FabricLinkFromSegments, CopiesWhatALaneDoesNotTake) {
  connect(2, 1 << 30);
  lastOfSender_->mostBytes = 1 << 20;
  const std::span segment = allocate(4 << 20);
  for (std::byte& each : segment) each = static_cast<std::byte>(rng_.next());
  for (size_t bytes : {50'000, 300'000, 100'000, 200}) send(segment.subspan(1000, bytes));
  EXPECT_FALSE(sender_->reaches(segment.first(10'000)));
}

// What was not out whole is not taken for something whole; the notice comes in any case.
TEST_P(FabricLink, ThatTakesItsMemoryBackSaysHowMuchWentOut) {
  connect(1 + rng_.below(kMaxPayloadLanes), rng_.below(2) == 0 ? 10'000 : 1 << 30);
  makeMessages(12);
  std::vector<std::vector<std::byte>> lent = messages_;
  const auto sendLent = [&] {
    for (; taken_ < lent.size(); ++taken_) {
      const Label label{.bytes = static_cast<uint32_t>(lent[taken_].size()),
                        .signature = static_cast<uint32_t>(taken_)};
      if (sender_->send(label, lent[taken_]) == Progress::kIdle) break;
    }
    ASSERT_TRUE(sender_->flush().ok());
  };
  for (uint64_t steps = rng_.below(60); steps > 0; --steps) {
    sendLent();
    ASSERT_TRUE(stepReceiver().ok());
  }
  sender_->keepCopies({});
  for (auto& each : lent) std::ranges::fill(each, std::byte{0xEE});
  const size_t taken = taken_;
  taken_ = messages_.size();  // nothing more
  ASSERT_TRUE(stepSender().ok());
  bool isOver = false;
  for (int step = 0; step < 1'000'000 && !isOver; ++step) {
    ASSERT_TRUE(stepSender().ok());
    Result<bool> over = stepReceiver();
    ASSERT_TRUE(over.ok()) << over.status().message();
    isOver = *over;
  }
  EXPECT_TRUE(isOver);
  EXPECT_LE(received_, taken);
  EXPECT_EQ(sender_->sentCount(), taken);
}

// As who aborts does: nobody waits for what it has not sent, though adapters say nothing of its
// end.
TEST_P(FabricLink, WhoseSenderGoesAmidItAllTellsWhy) {
  connect(1 + rng_.below(kMaxPayloadLanes), 1 << 30);
  for (const auto& wire : wires_) wire->isSilent = true;
  makeMessages(12);
  for (uint64_t steps = rng_.below(80); steps > 0; --steps) {
    ASSERT_TRUE(stepSender().ok());
    ASSERT_TRUE(stepReceiver().ok());
  }
  taken_ = messages_.size();
  if (!hasLeft_) {
    ASSERT_TRUE(stepSender().ok());
  }
  sender_.reset();
  for (const auto& wire : wires_) wire->isStill = true;
  for (int step = 0; step < 100'000; ++step) {
    Result<bool> over = stepReceiver();
    ASSERT_TRUE(over.ok()) << over.status().message();
    if (*over) return;
  }
  FAIL() << "no notice came";
}

TEST_P(FabricLink, TouchesNoPlaceOnceItsReceiverHasStopped) {
  connect(1 + rng_.below(kMaxPayloadLanes), 1 << 30);
  messages_.emplace_back(200'000, std::byte{5});
  while (!hasLabel_ && received_ == 0) {
    ASSERT_TRUE(stepSender().ok());
    ASSERT_TRUE(stepReceiver().ok());
  }
  if (!hasLabel_) return;
  place_.assign(place_.size(), std::byte{1});
  Result<Progress> progress = receiver_->receivePayload(place_);
  ASSERT_TRUE(progress.ok());
  if (*progress == Progress::kDone) return;
  receiver_->stop();
  place_.assign(place_.size(), std::byte{2});
  [[maybe_unused]] const Status broken = stepSender();
  EXPECT_EQ(std::ranges::count(place_, std::byte{2}), 200'000);
}

}  // namespace
}  // namespace tutti::net
