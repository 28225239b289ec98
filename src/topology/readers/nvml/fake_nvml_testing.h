// A machine for tests/fakes/nvml.cc, a library with NVML's names: tests fill it in, the library
// answers from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::topology::nvml {

struct FakeLink {
  std::string remoteBusId;  // as NVML writes it: "00000000:0F:00.0"
  unsigned remoteType = 0;  // 0 a GPU, 1 a CPU, 2 a switch
  bool isUp = true;
};

struct FakeGpu {
  std::string busId;
  int major = 9, minor = 0;
  std::vector<FakeLink> links = {};
  std::vector<uint32_t> c2cMbPerSecond = {};  // a link each; 0: down
  unsigned peerStatus = 0;                    // to all others; 0: OK
  std::optional<unsigned> splitMode = {};     // MIG
  int error = 0;                              // of the call that asks for its handle
};

struct FakeMachine {
  std::vector<FakeGpu> gpus = {};
  int initError = 0;
  int capabilityError = 0;
  int opened = 0;  // nvmlInit less nvmlShutdown
};

// What "fakeNvmlMachine" is in the library.
using FakeMachineAccess = FakeMachine* (*)();

}  // namespace tutti::topology::nvml
