// The part of NVML that the topology reader uses, answering from a machine that the test describes.
// The interface is NVIDIA's published one; the words behind it are the reader's own layouts.
#include <array>
#include <cstdint>
#include <cstring>

#include "topology/readers/nvml/fake_nvml_testing.h"

namespace {

using tutti::topology::nvml::FakeGpu;
using tutti::topology::nvml::FakeMachine;

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3;

struct PciInfo {
  std::array<char, 16> busIdLegacy;
  unsigned domain, bus, device, deviceId, subsystemId;
  std::array<char, 32> busId;
};

struct FieldValue {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUs;
  int valueType, code;
  uint64_t value;
};

FakeMachine& machine() {
  static FakeMachine one;
  return one;
}

void write(PciInfo* info, const char* busId) {
  *info = {};
  std::strncpy(info->busId.data(), busId, info->busId.size() - 1);
}

FakeGpu& gpuOf(void* handle) { return *static_cast<FakeGpu*>(handle); }

}  // namespace

#define FAKE_NVML extern "C" __attribute__((visibility("default")))

FAKE_NVML FakeMachine* fakeNvmlMachine() { return &machine(); }

FAKE_NVML int nvmlInit_v2() {
  if (machine().initError == 0) ++machine().opened;
  return machine().initError;
}
FAKE_NVML int nvmlShutdown() {
  --machine().opened;
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine().gpus.size());
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= machine().gpus.size()) return kInvalidArgument;
  *handle = &machine().gpus[index];
  return machine().gpus[index].error;
}
FAKE_NVML int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  write(info, gpuOf(handle).busId.c_str());
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  *major = gpuOf(handle).major;
  *minor = gpuOf(handle).minor;
  return machine().capabilityError;
}
FAKE_NVML int nvmlDeviceGetNvLinkState(void* handle, unsigned link, unsigned* state) {
  if (link >= gpuOf(handle).links.size()) return kNotSupported;
  *state = gpuOf(handle).links[link].isUp ? 1 : 0;
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* handle, unsigned link, PciInfo* info) {
  if (link >= gpuOf(handle).links.size()) return kNotSupported;
  write(info, gpuOf(handle).links[link].remoteBusId.c_str());
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetNvLinkRemoteDeviceType(void* handle, unsigned link, unsigned* type) {
  if (link >= gpuOf(handle).links.size()) return kNotSupported;
  *type = gpuOf(handle).links[link].remoteType;
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetP2PStatus(void* one, void* other, unsigned, unsigned* status) {
  const unsigned worse = gpuOf(one).peerStatus;
  *status = worse != 0 ? worse : gpuOf(other).peerStatus;
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  if (!gpuOf(handle).splitMode) return kNotSupported;
  *current = *pending = *gpuOf(handle).splitMode;
  return kSuccess;
}
FAKE_NVML int nvmlDeviceGetFieldValues(void* handle, int count, FieldValue* values) {
  const std::vector<uint32_t>& links = gpuOf(handle).c2cMbPerSecond;
  for (int i = 0; i < count; ++i) {
    FieldValue& each = values[i];
    each.code = kSuccess;
    if (each.fieldId == 170) {
      each.value = links.size();
    } else if (each.scopeId >= links.size()) {
      each.code = kNotSupported;
    } else {
      each.value = each.fieldId == 171 ? (links[each.scopeId] > 0 ? 1 : 0) : links[each.scopeId];
    }
  }
  return kSuccess;
}
