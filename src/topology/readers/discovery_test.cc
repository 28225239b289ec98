// Discovery as a whole: a machine of files, NVML's answers, and what is made of both.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <fstream>

#include "topology/paths.h"
#include "topology/readers/nvml/fake_nvml_testing.h"
#include "topology/readers/sysfs/fake_machine_testing.h"
#include "topology/registry.h"
#include "topology/topology.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

// Two sockets; behind each a switch with a GPU and a NIC; a display adapter.
void makeServer(sysfs::FakeMachine& machine, nvml::FakeMachine& nvml) {
  machine.intel();
  machine.numaNode(0, "0f");
  machine.numaNode(1, "f0");
  for (int socket = 0; socket < 2; ++socket) {
    const std::string host = fmt::format("pci0000:{}0", socket);
    const auto at = [&](int bus, int device) {
      return fmt::format("0000:{}{}:{:02x}.0", socket, bus, device);
    };
    const auto add = [&](const std::string& busId, const std::string& path, const char* kind) {
      machine.pci(busId, {.path = path, .deviceClass = kind, .numa = socket});
    };
    const std::string up = host + "/" + at(0, 1);
    const std::string down = up + "/" + at(1, 0);
    add(at(0, 1), host, "0x060400");
    add(at(1, 0), up, "0x060400");
    add(at(2, 0), down, "0x060400");
    add(at(2, 1), down, "0x060400");
    add(at(3, 0), down + "/" + at(2, 0), "0x030200");
    add(at(4, 0), down + "/" + at(2, 1), "0x020700");
    machine.adapter(fmt::format("mlx5_{}", socket), {.device = at(4, 0)});
    nvml.gpus.push_back({.busId = fmt::format("00000000:{}3:00.0", socket),
                         .links = {{.remoteBusId = "00000000:99:00.0", .remoteType = 2}}});
  }
  machine.pci("0000:00:02.0", {.path = "pci0000:00", .deviceClass = "0x030000"});
}

TEST(Discovery, MakesAMachineOfFilesAndNvml) {
  void* library = ::dlopen(TUTTI_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  nvml::FakeMachine& nvml =
      *reinterpret_cast<nvml::FakeMachineAccess>(::dlsym(library, "fakeNvmlMachine"))();
  nvml = {};
  sysfs::FakeMachine machine;
  makeServer(machine, nvml);
  const Result<Description> found =
      discover({.root = machine.root(), .nvmlLibrary = TUTTI_FAKE_NVML, .hostHash = 3});
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Result<Topology> built = buildTopology(found.value());
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Topology& topology = built.value();
  const std::vector<NodeId> gpus = nodesOf(topology, NodeKind::kGpu);
  const std::vector<NodeId> ports = nodesOf(topology, NodeKind::kNet);
  ASSERT_EQ(gpus.size(), 2u);
  ASSERT_EQ(ports.size(), 2u);
  const Paths paths = computePaths(topology);
  EXPECT_EQ(paths.between(gpus[0], gpus[1]).kind, PathKind::kNvl);
  EXPECT_EQ(paths.between(gpus[1], nodesOf(topology, NodeKind::kCpu)[1]).kind, PathKind::kPhb);
  // One switch away, but nobody says that the NIC may reach the GPU's memory.
  EXPECT_EQ(paths.between(gpus[0], ports[0]).kind, PathKind::kPhb);
  EXPECT_EQ(topology[topology[gpus[0]].parent].busId, "0000:01:00.0");
  EXPECT_TRUE(topology[gpus[0]].parent == topology[topology[ports[0]].parent].parent);
  EXPECT_THAT(found.value().assumptions,
              testing::ElementsAre(HasSubstr("0000:00:02.0: a display or accelerator")));
  ::dlclose(library);
}

// What a virtual machine's provider describes, and what its driver knows.
TEST(Discovery, CompletesAFileWithWhatNvmlKnows) {
  void* library = ::dlopen(TUTTI_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  nvml::FakeMachine& nvml =
      *reinterpret_cast<nvml::FakeMachineAccess>(::dlsym(library, "fakeNvmlMachine"))();
  nvml = {.gpus = {{.busId = "00000001:00:00.0"}}};
  sysfs::FakeMachine folder;
  const std::string path = folder.root() + "/machine.xml";
  std::ofstream(path) << "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0001:00:00.0\" "
                         "class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"/>"
                         "</cpu></system>";
  const Description whole = discover({.file = path, .nvmlLibrary = TUTTI_FAKE_NVML}).value();
  EXPECT_EQ(whole.cpus.at(0).devices.at(0).gpu->smVersion, 90);
  EXPECT_TRUE(buildTopology(whole).ok());
  const Description bare = discover({.file = path, .nvmlLibrary = ""}).value();
  EXPECT_FALSE(bare.cpus.at(0).devices.at(0).gpu);
  ::dlclose(library);
}

TEST(Discovery, WithoutGpusLeavesThemOut) {
  nvml::FakeMachine unused;
  sysfs::FakeMachine machine;
  makeServer(machine, unused);
  const Description found = discover({.root = machine.root(), .nvmlLibrary = ""}).value();
  const Topology topology = buildTopology(found).value();
  EXPECT_TRUE(nodesOf(topology, NodeKind::kGpu).empty());
  EXPECT_EQ(nodesOf(topology, NodeKind::kNet).size(), 2u);
  EXPECT_THAT(
      found.assumptions,
      testing::ElementsAre("3 displays and accelerators are left out: no rank runs on a GPU"));
}

TEST(Discovery, OfFilesTellsTheKindsApart) {
  sysfs::FakeMachine folder;
  const std::string path = folder.root() + "/machine.xml";
  std::ofstream(path) << "<topology version=\"2.0\"><object type=\"Machine\"><object "
                         "type=\"NUMANode\" os_index=\"0\"/></object></topology>";
  EXPECT_EQ(readDescription(path).value().cpus.size(), 1u);
  std::ofstream(path) << "<system version=\"1\"><cpu numaid=\"0\"/></system>";
  const Description description = readDescription(path).value();
  ASSERT_TRUE(writeDescription(description, path).ok());
  EXPECT_TRUE(readDescription(path).value() == description);
  std::ofstream(path) << "<graphs version=\"1\"/>";
  EXPECT_THAT(std::string(readDescription(path).status().message()),
              HasSubstr("machine.xml:1:2: <graphs>: wanted <system>"));
}

}  // namespace
}  // namespace tutti::topology
