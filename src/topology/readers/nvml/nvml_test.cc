#include "topology/readers/nvml/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>

#include "topology/readers/nvml/fake_nvml_testing.h"
#include "topology/topology.h"

namespace tutti::topology::nvml {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Holds the fake library open, so that what is written into its machine stays.
class Nvml : public testing::Test {
 protected:
  Nvml() : handle_(::dlopen(TUTTI_FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
    const auto access = reinterpret_cast<FakeMachineAccess>(::dlsym(handle_, "fakeNvmlMachine"));
    machine_ = access();
    *machine_ = {};
  }
  ~Nvml() override {
    EXPECT_EQ(machine_->opened, 0);
    ::dlclose(handle_);
  }

  static PciDevice device(const std::string& busId, uint32_t deviceClass = 0x030200) {
    return {
        .busId = busId, .deviceClass = deviceClass, .linkSpeed = "16.0 GT/s PCIe", .linkWidth = 16};
  }

  void twoGpus() {
    description_.cpus.resize(1);
    description_.cpus[0].devices = {device("0000:11:00.0"), device("0000:12:00.0")};
    machine_->gpus = {{.busId = "00000000:11:00.0"}, {.busId = "00000000:12:00.0"}};
  }

  const Gpu& gpu(size_t i) { return *description_.cpus[0].devices[i].gpu; }

  Status read() { return addGpus({.library = TUTTI_FAKE_NVML}, description_); }

  void* handle_;
  FakeMachine* machine_;
  Description description_{.source = "this machine"};
};

TEST_F(Nvml, NamesGpusWhereTheyAre) {
  twoGpus();
  machine_->gpus[1].minor = 5;
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(gpu(0).smVersion, 90);
  EXPECT_EQ(gpu(1).smVersion, 95);
  EXPECT_EQ(gpu(1).device, 1);
  EXPECT_TRUE(gpu(0).directNet);
  EXPECT_EQ(gpu(0).peerOverPci, true);
  EXPECT_THAT(description_.assumptions, ElementsAre());
  EXPECT_TRUE(buildTopology(description_).ok());
}

TEST_F(Nvml, CountsLinksByWhatTheyLeadTo) {
  twoGpus();
  const FakeLink toSwitch{.remoteBusId = "00000000:05:00.0", .remoteType = 2};
  FakeLink toOtherSwitch{.remoteBusId = "00000000:06:00.0", .remoteType = 2};
  machine_->gpus[0].links = {toSwitch,
                             toOtherSwitch,
                             {.remoteBusId = "00000000:12:00.0"},
                             {.remoteBusId = "00000000:12:00.0", .isUp = false},
                             {.remoteBusId = "00000000:77:00.0"},
                             {.remoteBusId = "00000000:00:00.0", .remoteType = 1}};
  ASSERT_TRUE(read().ok());
  ASSERT_EQ(gpu(0).nvLinks.size(), 3u);
  EXPECT_EQ(gpu(0).nvLinks[0].target, NvLinkTarget::kSwitch);
  EXPECT_EQ(gpu(0).nvLinks[0].count, 2);
  EXPECT_EQ(gpu(0).nvLinks[1].targetBusId, "0000:12:00.0");
  EXPECT_EQ(gpu(0).nvLinks[1].count, 1);
  EXPECT_EQ(gpu(0).nvLinks[2].target, NvLinkTarget::kCpu);
}

TEST_F(Nvml, CountsLinksToItsCpuThatAreUp) {
  twoGpus();
  machine_->gpus[0].c2cMbPerSecond = {45000, 0, 45000};
  ASSERT_TRUE(read().ok());
  ASSERT_TRUE(gpu(0).c2c);
  EXPECT_EQ(gpu(0).c2c->count, 2);
  EXPECT_EQ(gpu(0).c2c->mbPerSecond, 45000);
  EXPECT_FALSE(gpu(1).c2c);
}

TEST_F(Nvml, SaysWhichGpusKeepTheirMemoryToThemselves) {
  twoGpus();
  machine_->gpus[0].peerStatus = 3;
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(gpu(0).peerOverPci, false);
  EXPECT_EQ(gpu(1).peerOverPci, false);
}

TEST_F(Nvml, TakesSplitGpusForLonely) {
  twoGpus();
  machine_->gpus[0].splitMode = 1;
  machine_->gpus[1].splitMode = 0;
  machine_->gpus[0].links = {{.remoteBusId = "00000000:12:00.0"}};
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(gpu(0).peerOverPci, false);
  EXPECT_THAT(gpu(0).nvLinks, ElementsAre());
  EXPECT_THAT(description_.assumptions, ElementsAre(HasSubstr("GPU 0 is split into instances")));
}

TEST_F(Nvml, FindsAPlaceForAGpuThatThePciTreeDoesNotShow) {
  twoGpus();
  description_.cpus[0].devices.resize(1);
  ASSERT_TRUE(read().ok());
  ASSERT_EQ(description_.cpus[0].devices.size(), 2u);
  EXPECT_EQ(gpu(1).device, 1);
  EXPECT_THAT(description_.assumptions,
              ElementsAre(HasSubstr("0000:12:00.0: GPU 1 has no place in the PCI tree")));
}

TEST_F(Nvml, LeavesOutAGpuThatItMayNotOpen) {
  twoGpus();
  machine_->gpus[0].error = 4;
  ASSERT_TRUE(read().ok());
  EXPECT_FALSE(description_.cpus[0].devices[0].gpu);
  EXPECT_TRUE(description_.cpus[0].devices[1].gpu);
  EXPECT_THAT(description_.assumptions, ElementsAre(HasSubstr("error 4")));
}

TEST_F(Nvml, ThatDoesNotStartMeansNoGpus) {
  twoGpus();
  machine_->initError = 9;
  ASSERT_TRUE(read().ok());
  EXPECT_FALSE(description_.cpus[0].devices[0].gpu);
  EXPECT_THAT(description_.assumptions, ElementsAre(HasSubstr("error 9")));
}

TEST_F(Nvml, ThatBreaksOffIsAnErrorAndIsClosed) {
  twoGpus();
  machine_->capabilityError = 15;
  const Status status = read();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("nvmlDeviceGetCudaComputeCapability: NVML error 15"));
}

TEST_F(Nvml, ThatIsNotThereOrIsAnotherLibraryMeansNoGpus) {
  twoGpus();
  ASSERT_TRUE(addGpus({.library = "libnothing-of-the-kind.so.1"}, description_).ok());
  ASSERT_TRUE(addGpus({.library = "libm.so.6"}, description_).ok());
  EXPECT_THAT(description_.assumptions,
              ElementsAre(HasSubstr("cannot be opened"), HasSubstr("is too old")));
}

}  // namespace
}  // namespace tutti::topology::nvml
