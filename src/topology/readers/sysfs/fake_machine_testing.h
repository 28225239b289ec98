// A machine made of files: a folder with the parts of /sys and /proc that the reader looks at,
// links included.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/status.h"

namespace tutti::topology::sysfs {

class FakeMachine {
 public:
  FakeMachine() {
    std::string pattern = testing::TempDir() + "tutti-sysfs-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~FakeMachine() {
    std::error_code none;
    std::filesystem::remove_all(root_, none);
  }

  std::string root() const { return root_.string(); }

  void cpuInfo(const std::string& text) { file("proc/cpuinfo", text); }
  void intel() {
    cpuInfo(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Xeon\n");
  }
  void numaNode(int number, const std::string& cpuMap) {
    file(fmt::format("sys/devices/system/node/node{}/cpumap", number), cpuMap + "\n");
  }

  struct Pci {
    std::string path;  // below /sys/devices: the host bridge and the bridges
    std::string deviceClass;
    int numa = 0;
    std::string speed = "16.0 GT/s PCIe";
    std::string width = "16";
  };
  void pci(const std::string& busId, const Pci& device) {
    const std::string folder = "sys/devices/" + device.path + "/" + busId;
    file(folder + "/class", device.deviceClass + "\n");
    file(folder + "/vendor", "0x10de\n");
    file(folder + "/device", "0x2330\n");
    file(folder + "/numa_node", fmt::format("{}\n", device.numa));
    file(folder + "/max_link_speed", device.speed + "\n");
    file(folder + "/max_link_width", device.width + "\n");
    link("sys/bus/pci/devices/" + busId, folder);
  }

  struct Interface {
    std::string device = {};  // bus id; "" for a virtual one
    std::string below = {};   // folders between the device and its net/
    std::string speed = {};
    std::string state = "up";
    std::string type = "1";
  };
  void interface(const std::string& name, const Interface& each) {
    const std::string folder =
        folderOf(each.device) + (each.below.empty() ? "" : "/" + each.below) + "/net/" + name;
    file(folder + "/operstate", each.state + "\n");
    file(folder + "/type", each.type + "\n");
    if (!each.speed.empty()) file(folder + "/speed", each.speed + "\n");
    link("sys/class/net/" + name, folder);
  }

  struct Adapter {
    std::string device;
    std::string rate = "200 Gb/sec (4X HDR)";
    std::string state = "4: ACTIVE";
  };
  void adapter(const std::string& name, const Adapter& each) {
    const std::string folder = folderOf(each.device) + "/infiniband/" + name;
    file(folder + "/node_guid", "e41d:2d03:00aa:bbcc\n");
    file(folder + "/ports/1/state", each.state + "\n");
    file(folder + "/ports/1/rate", each.rate + "\n");
    link("sys/class/infiniband/" + name, folder);
  }

 private:
  std::string folderOf(const std::string& busId) const {
    if (busId.empty()) return "sys/devices/virtual";
    const auto real = std::filesystem::canonical(root_ / "sys/bus/pci/devices" / busId);
    return std::filesystem::relative(real, std::filesystem::canonical(root_)).string();
  }

  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_directory_symlink(root_ / target, root_ / path);
  }

  std::filesystem::path root_;
};

}  // namespace tutti::topology::sysfs
