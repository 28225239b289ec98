#include "device/cuda/memory.h"

#include <cstring>
#include <utility>

#include "device/cuda/context_scope.h"

namespace tutti::device::cuda {
namespace {

DevicePointer asPointer(const void* address) { return reinterpret_cast<DevicePointer>(address); }

// A reserved range of addresses with memory mapped to it. Takes itself apart in reverse, whatever
// part of it exists.
class MappedMemory final : public DeviceMemory {
 public:
  explicit MappedMemory(const MemoryOwner& owner) : owner_(owner) {}

  // At the end of the process the driver may be gone before us; then there is nothing to give back.
  ~MappedMemory() override {
    const OwnCallsScope scope(owner_.driver, owner_.context);
    if (isMapped_) owner_.driver.memoryUnmap(address_, bytes_);
    if (handle_ != 0) owner_.driver.memoryRelease(handle_);
    if (address_ != 0) owner_.driver.addressFree(address_, bytes_);
  }

  void* address() const override { return reinterpret_cast<void*>(address_); }
  size_t bytes() const override { return bytes_; }

  Result<UniqueFd> exportHandle() const override {
    int fd = -1;
    TUTTI_TRY(owner_.driver.check(owner_.driver.memoryExport(&fd, handle_, kHandlePosixFd, 0),
                                  "cuMemExportToShareableHandle"));
    return UniqueFd(fd);
  }

  Status create(size_t bytes) {
    AllocationProperties properties = propertiesOf();
    int isMappedForDevices = 0;
    TUTTI_TRY(
        owner_.driver.check(owner_.driver.deviceAttribute(
                                &isMappedForDevices, kAttributeMappedForDevices, owner_.device),
                            "cuDeviceGetAttribute"));
    properties.flags.rdmaCapable = isMappedForDevices != 0 ? 1 : 0;
    bytes_ = bytes;
    return owner_.driver.check(owner_.driver.memoryCreate(&handle_, bytes, &properties, 0),
                               "cuMemCreate",
                               fmt::format("{} bytes on device {}", bytes, owner_.device));
  }

  Status import(const UniqueFd& fd, size_t bytes) {
    bytes_ = bytes;
    // The driver wants the descriptor itself in place of a pointer to it.
    void* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
    return owner_.driver.check(owner_.driver.memoryImport(&handle_, descriptor, kHandlePosixFd),
                               "cuMemImportFromShareableHandle",
                               fmt::format("{} bytes of another process", bytes));
  }

  Status map() {
    const Driver& driver = owner_.driver;
    TUTTI_TRY(driver.check(driver.addressReserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve",
                           fmt::format("{} bytes", bytes_)));
    TUTTI_TRY(driver.check(driver.memoryMap(address_, bytes_, 0, handle_, 0), "cuMemMap"));
    isMapped_ = true;
    return allowAccess(driver, owner_.device, *this);
  }

  Result<size_t> granularity() const {
    const AllocationProperties properties = propertiesOf();
    size_t granularity = 0;
    TUTTI_TRY(owner_.driver.check(
        owner_.driver.granularity(&granularity, &properties, kGranularityRecommended),
        "cuMemGetAllocationGranularity"));
    return granularity;
  }

 private:
  AllocationProperties propertiesOf() const {
    AllocationProperties properties;
    properties.location.id = owner_.device;
    return properties;
  }

  const MemoryOwner owner_;
  AllocationHandle handle_ = 0;
  DevicePointer address_ = 0;
  size_t bytes_ = 0;
  bool isMapped_ = false;
};

// Closed when it goes; the driver counts how often a context has opened one allocation.
class LegacyMemory final : public DeviceMemory {
 public:
  LegacyMemory(const MemoryOwner& owner, size_t bytes) : owner_(owner), bytes_(bytes) {}
  ~LegacyMemory() override {
    const OwnCallsScope scope(owner_.driver, owner_.context);
    if (address_ != 0) owner_.driver.ipcClose(address_);
  }
  void* address() const override { return reinterpret_cast<void*>(address_); }
  size_t bytes() const override { return bytes_; }
  Result<UniqueFd> exportHandle() const override {
    return internalError("memory of another process is not exported again");
  }
  Status open(const IpcHandle& handle) {
    return owner_.driver.check(owner_.driver.ipcOpen(&address_, handle, kIpcOpensPeerAccess),
                               "cuIpcOpenMemHandle", fmt::format("{} bytes", bytes_));
  }

 private:
  const MemoryOwner owner_;
  const size_t bytes_;
  DevicePointer address_ = 0;
};

class PinnedWords final : public SharedWords {
 public:
  explicit PinnedWords(const MemoryOwner& owner) : owner_(owner) {}
  ~PinnedWords() override {
    const OwnCallsScope scope(owner_.driver, owner_.context);
    if (host_ != nullptr) owner_.driver.hostFree(host_);
  }
  void* hostAddress() const override { return host_; }
  void* deviceAddress() const override { return reinterpret_cast<void*>(device_); }

  Status create(size_t bytes) {
    const Driver& driver = owner_.driver;
    TUTTI_TRY(
        driver.check(driver.hostAlloc(&host_, bytes, kHostAllocPortable | kHostAllocDeviceMap),
                     "cuMemHostAlloc", fmt::format("{} bytes", bytes)));
    std::memset(host_, 0, bytes);
    return driver.check(driver.hostDevicePointer(&device_, host_, 0), "cuMemHostGetDevicePointer");
  }

 private:
  const MemoryOwner owner_;
  void* host_ = nullptr;
  DevicePointer device_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> createMemory(const MemoryOwner& owner, size_t bytes) {
  auto memory = std::make_unique<MappedMemory>(owner);
  TUTTI_TRY_ASSIGN(const size_t granularity, memory->granularity());
  TUTTI_TRY(memory->create((bytes + granularity - 1) / granularity * granularity));
  TUTTI_TRY(memory->map());
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

Result<std::unique_ptr<DeviceMemory>> mapMemory(const MemoryOwner& owner, UniqueFd handle,
                                                size_t bytes) {
  auto memory = std::make_unique<MappedMemory>(owner);
  TUTTI_TRY(memory->import(handle, bytes));
  TUTTI_TRY(memory->map());
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

Result<std::unique_ptr<DeviceMemory>> openLegacy(const MemoryOwner& owner, const IpcHandle& handle,
                                                 size_t bytes) {
  auto memory = std::make_unique<LegacyMemory>(owner, bytes);
  TUTTI_TRY(memory->open(handle));
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

Result<UniqueFd> exportMapped(const Driver& driver, const void* address) {
  AllocationHandle handle = 0;
  int fd = -1;
  DriverResult result = driver.memoryRetain(&handle, const_cast<void*>(address));
  if (result == kSuccess) {
    result = driver.memoryExport(&fd, handle, kHandlePosixFd, 0);
    driver.memoryRelease(handle);
  }
  if (result == kSuccess) return UniqueFd(fd);
  return Status(
      Code::kInvalidUsage,
      fmt::format("{} was not allocated to be shared between processes ({})", address, result));
}

Status allowAccess(const Driver& driver, DeviceNumber device, const DeviceMemory& memory) {
  const AccessDescription access{.location = {.type = kLocationDevice, .id = device},
                                 .flags = kAccessReadWrite};
  return driver.check(
      driver.memorySetAccess(asPointer(memory.address()), memory.bytes(), &access, 1),
      "cuMemSetAccess", fmt::format("device {}", device));
}

Result<std::unique_ptr<SharedWords>> createWords(const MemoryOwner& owner, size_t bytes) {
  auto words = std::make_unique<PinnedWords>(owner);
  TUTTI_TRY(words->create(bytes));
  return std::unique_ptr<SharedWords>(std::move(words));
}

}  // namespace tutti::device::cuda
