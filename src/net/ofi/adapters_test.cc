// What is taken where nobody names a network, by adapters in a folder that stands for the machine's
// and a libfabric in which shm goes by another name (tests/fakes/fabric.c).
#include "net/ofi/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "net/ofi/library.h"
#include "net/registry.h"

namespace tutti::net::ofi {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OfiAdapters : public testing::Test {
 protected:
  OfiAdapters() : root_(testing::TempDir() + fmt::format("tutti_ofi_adapters_{}", ::getpid())) {
    options_.root = root_;
    options_.interfaces = "lo";
    options_.verbs.isDisabled = true;
  }
  ~OfiAdapters() override {
    fs::remove_all(root_);
    ::unsetenv("FAKE_FABRIC_PROVIDER");
  }

  void addFile(const std::string& path) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << "";
  }
  void addRdma(const std::string& name, const std::string& driver) const {
    const std::string device = root_ + "/sys/class/infiniband/" + name + "/device";
    fs::create_directories(device);
    fs::create_symlink("../../../../bus/pci/drivers/" + driver, device + "/driver");
  }
  std::vector<std::string> providers() const {
    std::vector<std::string> names;
    for (const auto& adapter : findAdapters(root_)) names.push_back(adapter.provider);
    return names;
  }
  NetworkChoice choose() const { return chooseNetwork(options_).value(); }
  // False: there is no libfabric to rename a provider of.
  bool useFake(const char* provider) {
    if (!loadLibrary().ok()) return false;
    ::setenv("FAKE_FABRIC_PROVIDER", provider, 1);
    options_.ofiLibrary = TUTTI_FAKE_FABRIC;
    return true;
  }

  const std::string root_;
  NetworkOptions options_;
};

TEST_F(OfiAdapters, AreKnownByWhatTheKernelShows) {
  EXPECT_TRUE(providers().empty());
  addRdma("mlx5_0", "mlx5_core");
  addFile("/dev/null");
  EXPECT_TRUE(providers().empty());
  addRdma("rdmap16s27", "efa");
  EXPECT_EQ(providers(), std::vector<std::string>{"efa"});
  addFile("/sys/class/cxi/cxi1");
  addFile("/sys/class/cxi/cxi0");
  addFile("/dev/hfi1_0");
  addRdma("irdma0", "irdma");
  EXPECT_EQ(providers(), (std::vector<std::string>{"cxi", "efa", "opx", "psm2", "psm3"}));
  EXPECT_EQ(findAdapters(root_).front().sign, root_ + "/sys/class/cxi/cxi0");
}

TEST_F(OfiAdapters, AreNoReasonToOpenLibfabricWhereThereAreNone) {
  options_.ofiLibrary = "libnowhere.so.1";
  EXPECT_EQ(choose().name, "socket");
  EXPECT_EQ(choose().reason, "NCCL_IB_DISABLE=1");
}

TEST_F(OfiAdapters, ThatAreNotUsedSayWhy) {
  addRdma("rdmap16s27", "efa");
  options_.ofiLibrary = "libnowhere.so.1";
  EXPECT_EQ(choose().name, "socket");
  EXPECT_THAT(choose().reason, HasSubstr("rdmap16s27: no libfabric: "));
  options_.ofiProvider = "cxi";
  EXPECT_THAT(choose().reason, HasSubstr("rdmap16s27: TUTTI_OFI_PROVIDER=cxi"));
}

TEST_F(OfiAdapters, AreTakenBeforeSockets) {
  if (!useFake("efa")) GTEST_SKIP() << "there is no libfabric.so.1";
  EXPECT_EQ(choose().name, "socket");
  addRdma("rdmap16s27", "efa");
  EXPECT_EQ(choose().name, "ofi");
  EXPECT_THAT(choose().reason, HasSubstr("libfabric's efa on "));
  options_.network = "Socket";
  EXPECT_EQ(choose().name, "socket");
}

TEST_F(OfiAdapters, AreNotOfAnyOtherProvider) {
  if (!useFake("nosuch")) GTEST_SKIP() << "there is no libfabric.so.1";
  addRdma("rdmap16s27", "efa");
  EXPECT_EQ(choose().name, "socket");
  EXPECT_THAT(choose().reason, HasSubstr("rdmap16s27: libfabric: no provider efa"));
}

// Of the network by its name, whose providers never come back with what they have.
TEST_F(OfiAdapters, AreFoundInTimeOrTheNetworkIsNone) {
  if (!useFake("hanging")) GTEST_SKIP() << "there is no libfabric.so.1";
  options_.network = "ofi";
  options_.ofiProvider = "hanging";
  options_.timeout = std::chrono::milliseconds(1500);
  ::setenv("FAKE_FABRIC", "hang-getinfo", 1);
  EXPECT_EQ(chooseNetwork(options_).status().message(),
            "NCCL_NET=ofi: this network cannot be used: libfabric has not returned from opening a "
            "provider within 1500 ms (see TUTTI_TIMEOUT_MS)");
  ::unsetenv("FAKE_FABRIC");
}

TEST_F(OfiAdapters, AreNotAskedForByTheNetworksName) {
  options_.network = "ofi";
  options_.ofiLibrary = "libnowhere.so.1";
  EXPECT_THAT(std::string(chooseNetwork(options_).status().message()),
              HasSubstr("NCCL_NET=ofi: this network cannot be used: no libfabric: "));
}

}  // namespace
}  // namespace tutti::net::ofi
