// Tests whose ranks are put on two hosts, over the network that TEST_NETWORK names: "ofi" is
// libfabric over TCP, "verbs" the stand-in for libibverbs. Without it ranks are where the test puts
// them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::conformance {

using Settings = std::vector<std::string>;

inline std::string temporary(const std::string& name) {
  return testing::TempDir() + "tutti_networks_" + std::to_string(::getpid()) + "_" + name;
}

inline std::string textOf(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Adapters of the stand-in, described in a file.
class FakeAdapters {
 public:
  FakeAdapters() : path_(temporary("verbs")) {}
  ~FakeAdapters() { forget(); }
  FakeAdapters(const FakeAdapters&) = delete;
  FakeAdapters& operator=(const FakeAdapters&) = delete;

  // One a place on the PCI bus, instead of those before.
  void describe(const std::vector<std::string>& places) const {
    forget();
    std::filesystem::create_directories(path_ + ".sys");
    std::ofstream file(path_);
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string name = "mlx5_" + std::to_string(i);
      const std::string place = path_ + ".sys/" + name;
      std::filesystem::create_directories(place);
      std::filesystem::create_symlink("../../" + places[i], place + "/device");
      file << "device " << name << ' ' << place << " 64\nport 1 active ib 64 2 " << 5 + i
           << "\ngid 0 ib fe80::" << 5 + i << '\n';
    }
  }
  Settings settings() const {
#ifdef TUTTI_FAKE_VERBS
    return {"LD_LIBRARY_PATH=" TUTTI_FAKE_VERBS, "FAKE_VERBS_DEVICES=" + path_};
#else
    return {};
#endif
  }

 private:
  void forget() const {
    std::filesystem::remove(path_);
    std::filesystem::remove_all(path_ + ".sys");
  }

  const std::string path_;
};

inline bool isSpread() { return !textOf("TEST_NETWORK").empty(); }

// How the log names it.
inline std::string spreadNetwork() {
  return textOf("TEST_NETWORK") == "ofi" ? "ofi: libfabric's tcp" : "IB: 2 adapters";
}

// Half of the ranks on each host: "0011".
inline std::string spreadLayout(int rankCount) {
  std::string hosts;
  for (int rank = 0; rank < rankCount; ++rank)
    hosts += static_cast<char>('0' + 2 * rank / rankCount);
  return hosts;
}

// Of all ranks. No link goes over another network than this.
inline Settings spreadSettings() {
  if (!isSpread()) return {};
  if (textOf("TEST_NETWORK") == "ofi") {
    // Libfabric unloads modules that have left memory behind, which nobody can free any more.
    return {"NCCL_NET=ofi", "TUTTI_OFI_PROVIDER=tcp", "LSAN_OPTIONS=detect_leaks=0"};
  }
  static const FakeAdapters adapters;
  adapters.describe({"0000:17:00.0", "0000:3b:00.0"});
  Settings settings = adapters.settings();
  settings.emplace_back("NCCL_NET=IB");
  return settings;
}

}  // namespace tutti::conformance
