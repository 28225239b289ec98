#include "comm/process.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/log_setup.h"
#include "base/rng.h"
#include "base/version.h"
#include "comm/communicator.h"
#include "comm/host_identity.h"
#include "comm/machine.h"
#include "comm/plugin_calls.h"
#include "comm/relays.h"
#include "device/accelerator.h"
#include "device/registry.h"
#include "device/shared_memory.h"
#include "kernels/gpu_catalog.h"
#include "observe/process_report.h"
#include "observe/process_state.h"

namespace tutti::comm {
namespace {

// How much longer a process lives to write what its last moments looked like.
constexpr std::chrono::seconds kBundlePatience{3};

constexpr std::chrono::minutes kPatience{10};

std::chrono::milliseconds timeoutOf(const Settings& settings) {
  return std::chrono::milliseconds(settings.integer("TUTTI_TIMEOUT_MS"));
}

// As long as PyTorch's process groups wait: a rank that loads data or compiles before its first
// collective is not gone. Who shortened the one time-out means this one, too.
std::chrono::milliseconds patienceOf(const Settings& settings) {
  const std::chrono::milliseconds own(settings.integer("TUTTI_INIT_TIMEOUT_MS"));
  if (own.count() > 0) return own;
  return settings.get("TUTTI_TIMEOUT_MS").isSet() ? timeoutOf(settings) : kPatience;
}

// A page that forked children find wiped (Linux 4.14): no handler to run at fork, no call to ask
// for the process id. Empty where the kernel cannot; forks then go unnoticed.
UniqueMapping makeOwnPage() {
  constexpr size_t kBytes = 4096;
  UniqueMapping page(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), kBytes);
  if (!page || ::madvise(page.get(), kBytes, MADV_WIPEONFORK) != 0) return {};
  *static_cast<char*>(page.get()) = 1;
  return page;
}

// How many GPUs ranks can run on, or why none. Without kernels they are as slow as the host, so
// only for those who ask for them.
Result<int32_t> usableGpus(bool areWanted) {
  if (!areWanted && !kernels::cuda::hasImages())
    return Status(Code::kInvalidUsage, "this build has no GPU kernels");
  return device::countGpus();
}

// Bundles are a help: a process does without them rather than not begin.
std::unique_ptr<BundleService> openBundles(const Settings& settings, const LinkRegister& links) {
  const std::string& folder = settings.text("TUTTI_BUNDLE_DIR");
  const auto signal = static_cast<int>(settings.integer("NCCL_PROXY_DUMP_SIGNAL"));
  if (folder.empty() && signal <= 0) return nullptr;
  auto service =
      BundleService::start({.folder = folder,
                            .settings = observe::describeSettings(settings, observe::Shown::kAll),
                            .signal = signal > 0 ? signal : SIGUSR1,
                            .links = [&links] { return links.look(); }});
  return service.ok() ? std::move(service).value() : nullptr;
}

}  // namespace

Process& Process::get() {
  static Process& process = *new Process();
  return process;
}

Process::Process() : settings_(Settings::load()), ownPage_(makeOwnPage()) {
  log::setUp(settings_);
  std::atexit([] { Process::get().leave(); });
  systemRng().fill(std::as_writable_bytes(std::span(&probeWord_, 1)));
  machineHash_ = comm::machineHash();
  hostDevice_ = device::openDevice(device::DeviceKind::kHost).value();
  handoff_.addSource([memory = hostDevice_->sharedMemory()](const bootstrap::HandoffToken& token) {
    return memory->open(token);
  });
  linksOf({});
  profiling_ = std::make_unique<Profiling>(settings_, pluginPatience(networkOptions().timeout));
  bundles_ = openBundles(settings_, links_);
  if (bundles_ != nullptr && !settings_.text("TUTTI_BUNDLE_DIR").empty())
    recorders_.watchClosely([this](const observe::Board& board) { bundles_->verdictGiven(board); });
}

// In the process's last moments, on the thread that called exit(). A forked child shares the pages,
// but the ranks on them are its parent's.
void Process::leave() {
  if (!checkNotForked().ok()) return;
  recorders_.mark();
  leaveTransports();
  profiling_->finish();
  if (bundles_ != nullptr) bundles_->finish(kBundlePatience);
}

// All of them end their own links first: another process that ends may wait for those of any.
void Process::leaveTransports() {
  const transport::Transports all = allTransports();
  const Instant deadline = clock().now() + timeoutOf(settings_);
  for (const auto& transport : all) transport->awaitOwners(Nanoseconds(0));
  for (const auto& transport : all)
    transport->awaitOwners(std::max(deadline - clock().now(), Nanoseconds(0)));
}

transport::TransportOptions Process::transportOptions(const net::NetworkWish& wish,
                                                      const bootstrap::HandoffToken& relayToken) {
  net::NetworkOptions network = net::withWish(net::networkOptionsOf(settings_), wish);
  network.segments = hostDevice_->sharedMemory();
  network.fabrics = fabrics_;
  return {.handoff = &handoff_,
          .shmDisabled = settings_.integer("NCCL_SHM_DISABLE") != 0,
          .relayToken = relayToken,
          .network = std::move(network),
          .timeout = timeoutOf(settings_)};
}

const Process::Links& Process::linksOf(const net::NetworkWish& wish) {
  const std::lock_guard lock(wishesMutex_);
  const auto known = networks_.find(wish);
  if (known != networks_.end()) return known->second;
  Links links;
  systemRng().fill(links.relayToken);
  const transport::TransportOptions options = transportOptions(wish, links.relayToken);
  links.transports = networks_.empty()
                         ? transport::openTransports(options)
                         : transport::withOtherNetwork(networks_.at({}).transports, options);
  return networks_.emplace(wish, std::move(links)).first->second;
}

transport::Transports Process::allTransports() {
  const std::lock_guard lock(wishesMutex_);
  transport::Transports all;
  for (const auto& [wish, links] : networks_)
    all.insert(all.end(), links.transports.begin(), links.transports.end());
  return all;
}

// Not logged: at the fork another thread may have held the log's mutex.
Status Process::checkNotForked() const {
  if (!isForked()) return {};
  return Status(Code::kInvalidUsage,
                "this process was forked from one that had used the library: its communicators "
                "stay there; fork before the first call, or exec");
}

std::shared_ptr<plan::Tuner> Process::openTuner(const TunedCommunicator& communicator) {
  const std::lock_guard lock(tunerMutex_);
  const Nanoseconds patience = pluginPatience(networkOptions().timeout);
  if (!tunerLibrary_) {
    Result<PluginLibrary> loaded = callInTime<PluginLibrary>(
        patience, [setting = settings_.text("NCCL_TUNER_PLUGIN")] { return loadTuner(setting); });
    tunerLibrary_ = loaded.ok() ? std::move(loaded).value() : PluginLibrary{};
  }
  if (!tunerLibrary_->exists()) return nullptr;
  Result<std::unique_ptr<plan::Tuner>> tuner = callInTime<std::unique_ptr<plan::Tuner>>(
      patience,
      [library = *tunerLibrary_, communicator] { return comm::openTuner(library, communicator); });
  if (!tuner.ok()) {
    // One that hung would do so for the next rank, too.
    if (tuner.status().code() == Code::kSystemError) tunerLibrary_ = PluginLibrary{};
    return nullptr;
  }
  log::info(log::Subsystem::kInit, "tuner plug-in {} of {}, version {}", tuner.value()->name(),
            tunerLibrary_->source, tunerLibrary_->version);
  return std::move(tuner).value();
}

std::shared_ptr<kernels::Crews> Process::crews() {
  const std::lock_guard lock(crewsMutex_);
  std::shared_ptr<kernels::Crews> crews = crews_.lock();
  if (crews == nullptr) crews_ = crews = std::make_shared<kernels::Crews>(clock());
  return crews;
}

Result<const FoundReduction*> Process::reduction() {
  const std::lock_guard lock(reductionMutex_);
  if (!noReduction_.ok()) return noReduction_.clone();
  if (reduction_) return &*reduction_;
  Result<FoundReduction> found = findReduction(net::networkOptionsOf(settings_));
  if (!found.ok()) {
    noReduction_ = found.takeStatus();
    return noReduction_.clone();
  }
  reduction_ = std::move(found).value();
  log::info(log::Subsystem::kNet, "collective network {}: {}", reduction_->network->caps().name,
            reduction_->network->caps().description);
  return &*reduction_;
}

Result<topology::Description> Process::machine(bool hasGpus) {
  const std::lock_guard lock(machineMutex_);
  const auto known = machines_.find(hasGpus);
  if (known != machines_.end()) return known->second;
  TUTTI_TRY_ASSIGN(const uint64_t host, hostHash(settings_.text("NCCL_HOSTID")));
  TUTTI_TRY_ASSIGN(topology::Description found, findMachine(settings_, hasGpus, host));
  return machines_.emplace(hasGpus, std::move(found)).first->second;
}

Result<VirtualCluster*> Process::virtualCluster() {
  if (settings_.text("TUTTI_VIRTUAL_CLUSTER").empty()) return static_cast<VirtualCluster*>(nullptr);
  const std::lock_guard lock(virtualMutex_);
  if (virtualCluster_ == nullptr) {
    TUTTI_TRY_ASSIGN(virtualCluster_, VirtualCluster::open(settings_));
  }
  return virtualCluster_.get();
}

Result<device::Device*> Process::chooseDevice(std::optional<int32_t> gpu) {
  TUTTI_TRY_ASSIGN(VirtualCluster * described, virtualCluster());
  if (described != nullptr) return described->device(gpu.value_or(0));
  const std::string& wanted = settings_.text("TUTTI_DEVICE");
  if (wanted == "host") return hostDevice_.get();
  const Result<int32_t> count = usableGpus(wanted == "cuda");
  if (!count.ok()) {
    // A driver that is there and fails: a program for GPUs is not to go on as one for CPUs.
    if (count.status().code() == Code::kUnhandledCudaError) return count.status().clone();
    if (wanted != "cuda") return hostDevice_.get();
    return invalidUsage("TUTTI_DEVICE=cuda, but {}: set it to auto or host for CPU ranks",
                        count.status().message());
  }
  int32_t number = 0;
  if (gpu) {
    number = *gpu;
  } else {
    TUTTI_TRY_ASSIGN(number, device::currentGpu());
  }
  if (number < 0 || number >= count.value())
    return invalidArgument("GPU {} is wanted; this process has GPUs 0 to {}", number,
                           count.value() - 1);
  std::lock_guard lock(gpuMutex_);
  auto& device = gpus_[number];
  if (device == nullptr) {
    TUTTI_TRY_ASSIGN(device, device::openDevice(device::DeviceKind::kCuda, {.index = number}));
  }
  return device.get();
}

Status Process::freeMemory(void* memory) {
  if (!settings_.text("TUTTI_VIRTUAL_CLUSTER").empty()) {
    TUTTI_TRY_ASSIGN(device::Device * device, chooseDevice());
    return device->free(memory);
  }
  {
    std::lock_guard lock(gpuMutex_);
    for (const auto& [number, device] : gpus_) {
      if (device != nullptr && device->accelerator()->hasAllocated(memory))
        return device->free(memory);
    }
  }
  return hostDevice_->free(memory);
}

bootstrap::NetworkOptions Process::networkOptions() const {
  bootstrap::NetworkOptions options;
  options.interfaces = settings_.text("NCCL_SOCKET_IFNAME");
  options.family = net::networkOptionsOf(settings_).family;
  options.commId = settings_.text("NCCL_COMM_ID");
  options.secretFile = settings_.text("TUTTI_SECRET_FILE");
  options.timeout = timeoutOf(settings_);
  options.patience = patienceOf(settings_);
  return options;
}

Result<bootstrap::PeerInfo> Process::describe(Rank rank, const net::NetworkWish& wish) {
  bootstrap::PeerInfo peer;
  peer.rank = index(rank);
  const observe::ProcessIdentity self = observe::thisProcess();
  peer.processId = self.processId;
  peer.processStart = self.start;
  peer.pidNamespace = self.pidNamespace;
  TUTTI_TRY_ASSIGN(peer.hostHash, hostHash(settings_.text("NCCL_HOSTID")));
  peer.processHash = directory_.processHash();
  peer.libraryVersion = kInterfaceVersionCode;
  peer.userId = ::geteuid();
  peer.usableCpus = hostDevice_->caps().concurrency;
  ::gethostname(peer.hostName.data(), peer.hostName.size() - 1);
  const std::string handoff = handoff_.name();
  std::strncpy(peer.handoffName.data(), handoff.c_str(), peer.handoffName.size() - 1);
  peer.rail = railOf(settings_);
  peer.relayToken = linksOf(wish).relayToken;
  return peer;
}

}  // namespace tutti::comm
