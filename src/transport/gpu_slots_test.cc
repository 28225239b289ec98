// Links between GPUs of one host: long messages lie in the receiver's GPU where the sender's can
// map its memory, in the host's where it cannot.
#include "transport/gpu_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/mapping.h"
#include "base/units.h"
#include "bootstrap/handoff.h"
#include "device/accelerator_testing.h"
#include "transport/connect_testing.h"
#include "transport/registry.h"

namespace tutti::transport {
namespace {

constexpr wire::LinkGeometry kGeometry{.slotCount = 2, .slotBytes = 16_KiB, .shortCount = 2};
constexpr size_t kLong = 10'000;

class FileMemory final : public device::DeviceMemory {
 public:
  FileMemory(UniqueFd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
    address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  }
  ~FileMemory() override { ::munmap(address_, bytes_); }
  void* address() const override { return address_; }
  size_t bytes() const override { return bytes_; }
  Result<UniqueFd> exportHandle() const override { return UniqueFd(::dup(fd_.get())); }

 private:
  const UniqueFd fd_;
  const size_t bytes_;
  void* address_ = nullptr;
};

// Its memory is a file's.
class FileAccelerator final : public device::EmptyAccelerator {
 public:
  Result<std::unique_ptr<device::DeviceMemory>> makeMemory(size_t bytes) override {
    if (hasNone) return Status(Code::kUnhandledCudaError, "no memory");
    UniqueFd fd(::memfd_create("gpu-slots-test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    return std::unique_ptr<device::DeviceMemory>(new FileMemory(std::move(fd), bytes));
  }
  Result<std::unique_ptr<device::DeviceMemory>> importMemory(UniqueFd fd, size_t bytes) override {
    if (reachesNobody) return Status(Code::kUnhandledCudaError, "no peer access");
    if (reachesWrongly) return makeMemory(bytes);
    return std::unique_ptr<device::DeviceMemory>(new FileMemory(std::move(fd), bytes));
  }
  Status copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  bool hasNone = false, reachesNobody = false, reachesWrongly = false;
};

struct Seat {
  explicit Seat(int32_t rank, uint64_t process) {
    info.rank = rank;
    info.hostHash = 7;
    info.processHash = process;
    info.userId = ::geteuid();
    const std::string name = handoff.name();
    std::memcpy(info.handoffName.data(), name.data(), name.size());
    slots.gpu = &gpu;
  }
  LinkOptions options() const { return {kGeometry, &slots}; }

  bootstrap::Handoff handoff;
  Transports transports =
      openTransports({.handoff = &handoff, .timeout = std::chrono::milliseconds(2000)});
  FileAccelerator gpu;
  GpuSlots slots;
  bootstrap::PeerInfo info;
};

// In one process both use one set of transports.
class GpuSlotsTest : public testing::TestWithParam<bool> {
 protected:
  Transport& at(Seat& seat) {
    return *pick(GetParam() ? receiver_.transports : seat.transports, sender_.info, receiver_.info)
                .value();
  }
  void connect() {
    listening_ = at(receiver_).listen(sender_.info, receiver_.info, receiver_.options()).value();
    out_ = awaitEnd(at(sender_).connect(sender_.info, receiver_.info, sender_.options(),
                                        listening_.offer))
               .value();
    ASSERT_EQ(at(sender_).caps().name, GetParam() ? "local" : "shm");
  }
  // The sender's half of a step, then the receiver's.
  void sendLong() {
    wire::LinkPort to{.view = out_->view()};
    ASSERT_TRUE(wire::hasFreeSlot(to, kLong));
    std::memset(wire::payloadToFill(to, kLong), 5, kLong);
    const bool isOnGpu = to.view.gpuSlots != nullptr;
    wire::publish(to, kLong, 1, wire::MessageKind::kPayload, isOnGpu ? wire::kOnGpu : 0);
    const wire::LinkPort from{.view = listening_.end->view()};
    ASSERT_TRUE(wire::hasMessage(from));
    const std::byte* payload = wire::receivedPayload(from, kLong);
    EXPECT_EQ(payload[0], std::byte{5});
    EXPECT_EQ(payload[kLong - 1], std::byte{5});
  }

  Seat receiver_{1, 2};
  Seat sender_{0, GetParam() ? 2U : 1U};
  Listening listening_;
  std::unique_ptr<LinkEnd> out_;
};

TEST_P(GpuSlotsTest, LongMessagesLieInTheReceiversGpu) {
  connect();
  ASSERT_NE(listening_.end->view().gpuSlots, nullptr);
  ASSERT_NE(out_->view().gpuSlots, nullptr);
  sendLong();
  EXPECT_EQ(listening_.end->view().gpuSlots[kLong - 1], std::byte{5});
}

TEST_P(GpuSlotsTest, LongMessagesLieInTheHostWhereTheSenderReachesNobody) {
  sender_.gpu.reachesNobody = true;
  connect();
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, AMappingOfOtherMemoryIsFoundOut) {
  sender_.gpu.reachesWrongly = true;
  connect();
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, LongMessagesLieInTheHostWhereTheReceiversGpuHasNoMemory) {
  receiver_.gpu.hasNone = true;
  connect();
  EXPECT_EQ(listening_.end->view().gpuSlots, nullptr);
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, ASenderThatIsToReachNoPeersGoesThroughTheHost) {
  sender_.slots.reachesPeers = false;
  connect();
  EXPECT_NE(listening_.end->view().gpuSlots, nullptr);
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, PairsThatAreTooFarApartGoThroughTheHost) {
  sender_.slots.farPeers = {receiver_.info.rank};
  receiver_.slots.farPeers = {sender_.info.rank};
  connect();
  EXPECT_EQ(listening_.end->view().gpuSlots, nullptr);
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, PairsThatAreNearDoNotBesideSuch) {
  sender_.slots.farPeers = {receiver_.info.rank + 1};
  receiver_.slots.farPeers = {sender_.info.rank + 2};
  connect();
  EXPECT_NE(out_->view().gpuSlots, nullptr);
  sendLong();
}

TEST_P(GpuSlotsTest, LinksOfTheHostHaveNone) {
  listening_ = at(receiver_).listen(sender_.info, receiver_.info, kGeometry).value();
  out_ = awaitEnd(at(sender_).connect(sender_.info, receiver_.info, kGeometry, listening_.offer))
             .value();
  EXPECT_EQ(listening_.end->view().gpuSlots, nullptr);
  EXPECT_EQ(out_->view().gpuSlots, nullptr);
}

TEST_P(GpuSlotsTest, TheMemoryStaysUntilBothSidesAreGone) {
  connect();
  listening_.end.reset();
  std::memset(out_->view().gpuSlots, 1, size_t{2} * kGeometry.slotBytes);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuSlotsTest, testing::Values(true, false),
                         [](const auto& kind) { return kind.param ? "local" : "shm"; });

}  // namespace
}  // namespace tutti::transport
