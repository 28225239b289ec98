#include "team.h"

#include <cstring>
#include <string_view>
#include <thread>

namespace tutti::bench {
namespace {

using kernels::cuda::GpuChoice;
using kernels::cuda::GpuRequest;

void enableAccess(CUcontext peer) {
  const CUresult result = cuCtxEnablePeerAccess(peer, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(result, "cuCtxEnablePeerAccess");
}

}  // namespace

uint32_t signatureOf(const Job& job) {
  uint64_t hash = 1469598103934665603ULL;
  for (const uint64_t part :
       {static_cast<uint64_t>(job.collective), static_cast<uint64_t>(job.type),
        static_cast<uint64_t>(job.op), job.count, static_cast<uint64_t>(job.root)}) {
    hash = (hash ^ part) * 1099511628211ULL;
  }
  return static_cast<uint32_t>(hash ^ hash >> 32) & ~wire::kGpuShares;
}

Team::Team(const TeamOptions& options) : options_(options), barrier_(options.ranks) {
  TUTTI_CU(cuInit(0));
  for (int gpu = 0; gpu < options.gpus; ++gpu) {
    CUdevice device = 0;
    int count = 0;
    TUTTI_CU(cuDeviceGet(&device, gpu));
    TUTTI_CU(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    multiprocessors_ = std::min(multiprocessors_, count);
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    members_.push_back(std::make_unique<Member>(*this, rank));
  }
  for (auto& member : members_) member->connect();
  run([](Member& member) { member.loadAll(); });
  // As the library does where ranks share a GPU; here always, so that each run shows what breaks
  // it.
  for (auto& member : members_) member->warmUp();
}

Team::~Team() = default;

void Team::run(const std::function<void(Member&)>& body) {
  std::vector<std::thread> threads;
  for (auto& member : members_) {
    threads.emplace_back([&body, &member] {
      member->makeCurrent();
      body(*member);
    });
  }
  for (auto& thread : threads) thread.join();
}

void Team::reset() {
  for (auto& member : members_) member->clear();
}

Member::Member(Team& team, int rank) : team_(team), rank_(rank) {
  TUTTI_CU(cuDeviceGet(&device_, rank % team.options().gpus));
  TUTTI_CU(cuDevicePrimaryCtxRetain(&context_, device_));
  makeCurrent();
  TUTTI_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  void* words = nullptr;
  TUTTI_CU(cuMemHostAlloc(&words, sizeof(HostWords),
                          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  hostWords_ = static_cast<HostWords*>(words);
  segment_ = std::make_unique<DeviceBuffer>(wire::gpuAreaBytes(team.options().ranks));
  clear();
}

Member::~Member() {
  makeCurrent();
  segment_.reset();
  cuMemFreeHost(hostWords_);
  cuStreamDestroy(stream_);
  for (Loaded& loaded : loaded_) {
    if (loaded.module != nullptr) cuModuleUnload(loaded.module);
  }
  cuDevicePrimaryCtxRelease(device_);
}

void Member::clear() {
  makeCurrent();
  std::memset(hostWords_, 0, sizeof(HostWords));
  TUTTI_CU(cuMemsetD8(segment_->address(), 0, wire::gpuAreaBytes(team_.options().ranks)));
  TUTTI_CU(cuCtxSynchronize());
}

void Member::connect() {
  makeCurrent();
  for (int peer = 0; peer < team_.ranks(); ++peer) {
    Member& other = team_.member(peer);
    if (other.context_ != context_) enableAccess(other.context_);
    view_.segments[peer] = reinterpret_cast<std::byte*>(other.segment());
  }
  view_.abortWord = &hostWords_->abort;
  view_.error = &hostWords_->error;
  view_.starts = &hostWords_->starts;
  view_.timeoutNs = team_.options().timeoutMs * 1'000'000;
  view_.rank = rank_;
  view_.rankCount = team_.ranks();
}

CUfunction Member::function(int image, const char* name) {
  Loaded& loaded = loaded_[static_cast<size_t>(image)];
  if (loaded.module == nullptr) {
    const std::string& folder = team_.options().images;
    if (folder.empty()) {
      TUTTI_CU(cuModuleLoadData(&loaded.module, kernels::cuda::image(image).data()));
    } else {
      const std::string path = folder + "/" + std::to_string(image) + ".fatbin";
      TUTTI_CU(cuModuleLoad(&loaded.module, path.c_str()));
    }
  }
  for (size_t i = 0; i < loaded.names.size(); ++i) {
    if (loaded.names[i] != nullptr && std::string_view(loaded.names[i]) == name) {
      return loaded.functions[i];
    }
    if (loaded.names[i] == nullptr) {
      TUTTI_CU(cuModuleGetFunction(&loaded.functions[i], loaded.module, name));
      loaded.names[i] = name;
      const uint32_t sharedBytes = kernels::cuda::mostSharedBytes(name, team_.ranks());
      if (team_.options().movesByBulk && sharedBytes > 0) {
        TUTTI_CU(cuFuncSetAttribute(loaded.functions[i],
                                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    static_cast<int>(sharedBytes)));
      }
      return loaded.functions[i];
    }
  }
  return nullptr;
}

void Member::loadAll() {
  for (int image = 0; image < kernels::cuda::kProgramImages; ++image) {
    for (const char* name : kernels::cuda::kernelNames(image, team_.ranks())) {
      if (name != nullptr) function(image, name);
    }
  }
}

void Member::warmUp() {
  makeCurrent();
  for (int image = 0; image < kernels::cuda::kProgramImages; ++image) {
    for (const char* name : kernels::cuda::kernelNames(image, team_.ranks())) {
      if (name == nullptr) continue;
      // With as many threads as every kernel may have.
      GpuChoice choice = kernels::cuda::transferKernel();
      choice.image = image;
      choice.kernel = name;
      union {
        wire::GpuLaunch launch;
        wire::GpuTransfers transfers;
      } work{};
      launch(choice, {.blocks = 1, .threads = choice.threads, .sharedBytes = 0}, &work);
    }
  }
  synchronize();
}

GpuRequest Member::request(const Job& job) const {
  return {.collective = job.collective,
          .type = job.type,
          .op = job.op,
          .count = job.count,
          .rankCount = team_.ranks(),
          .ranksPerDevice = (team_.ranks() + team_.options().gpus - 1) / team_.options().gpus,
          .multiprocessors = team_.multiprocessors(),
          .maxBlocks = team_.options().maxBlocks,
          .keepsLines = true,
          .hasBulk = team_.options().movesByBulk,
          .lineBytes = team_.options().lineBytes,
          .stageBytes = team_.options().stageBytes,
          .wideBytes = team_.options().wideBytes,
          .transferBytes = team_.options().transferBytes};
}

// What launch::GpuBatcher asks of a registered buffer; all ranks must answer alike here.
std::optional<GpuChoice> Member::sharingChoice(const Job& job) const {
  const bool isAligned = (reinterpret_cast<uintptr_t>(job.output) & 15) == 0;
  const bool isSafe = job.collective != Collective::kAllToAll || job.input != job.output;
  if (!team_.options().sharesBuffers || !isAligned || !isSafe) return std::nullopt;
  return kernels::cuda::choiceThatShares(request(job), *kernels::cuda::choose(request(job)));
}

GpuChoice Member::choose(const Job& job) const {
  GpuChoice choice = sharingChoice(job).value_or(*kernels::cuda::choose(request(job)));
  const int lanes = team_.options().lanes;
  if (lanes > 0 && choice.isApart) choice.blocks = std::min(choice.blocks, lanes);
  return choice;
}

void Member::launch(std::span<const Job> jobs) {
  size_t i = 0;
  while (i < jobs.size()) {
    if (goesAsTransfers(jobs[i])) {
      launchParts(jobs[i++]);
      continue;
    }
    std::vector<wire::GpuCall> calls;
    GpuChoice choice = choose(jobs[i]);
    bool isBulk = choice.isBulk;
    for (; i < jobs.size() && calls.size() < wire::kGpuMaxCalls; ++i) {
      const GpuChoice next = choose(jobs[i]);
      if (goesAsTransfers(jobs[i])) break;
      if (std::string_view(next.kernel) != choice.kernel || next.image != choice.image ||
          next.isBulk != choice.isBulk)
        break;
      isBulk =
          isBulk && kernels::cuda::mayGoByBulk(request(jobs[i]), jobs[i].input, jobs[i].output);
      choice.threads = std::max(choice.threads, next.threads);
      choice.startsEarly = choice.startsEarly && next.startsEarly;
      wire::GpuCall call = kernels::cuda::makeCall(request(jobs[i]), next);
      if (const uint32_t most = team_.options().chunkBytes; most != 0 && next.protocol == "slots") {
        call.chunkBytes = most;
      }
      call.input = jobs[i].input;
      call.output = jobs[i].output;
      call.root = static_cast<int8_t>(jobs[i].root);
      call.scalar = jobs[i].scalar;
      call.signature = signatureOf(jobs[i]);
      call.reach = sharingChoice(jobs[i]) ? 0 : -1;
      calls.push_back(call);
    }
    launch(choice, calls, isBulk);
  }
}

void Member::launch(const GpuChoice& choice, std::span<const wire::GpuCall> calls, bool isBulk) {
  wire::GpuLaunch launch{};
  launch.view = view_;
  launch.callCount = static_cast<int32_t>(calls.size());
  unsigned grid = 1;
  for (size_t i = 0; i < calls.size(); ++i) {
    launch.calls[i] = calls[i];
    if (calls[i].reach >= 0 && launch.reachCount < wire::kGpuMaxReaches) {
      launch.calls[i].reach = static_cast<int8_t>(launch.reachCount);
      // One process: an address is the same to all.
      std::ranges::fill(launch.reaches[launch.reachCount++].output,
                        static_cast<std::byte*>(calls[i].output));
    } else {
      launch.calls[i].reach = -1;
    }
    grid = std::max(grid, static_cast<unsigned>(calls[i].blocks));
  }
  launch.isBulk = isBulk ? 1 : 0;
  const auto lanes = static_cast<int32_t>(grid);
  this->launch(choice, kernels::cuda::gridOf(choice, lanes, team_.ranks(), isBulk), &launch);
}

void Member::launch(const GpuChoice& choice, const kernels::cuda::GpuGrid& grid, void* argument) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(grid.blocks);
  config.sharedMemBytes = grid.sharedBytes;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = static_cast<unsigned>(grid.threads);
  config.hStream = stream_;
  config.attrs = &early;
  config.numAttrs = choice.startsEarly && team_.options().startsEarly ? 1 : 0;
  void* parameters[] = {argument};
  TUTTI_CU(cuLaunchKernelEx(&config, function(choice.image, choice.kernel), parameters, nullptr));
}

bool Member::goesAsTransfers(const Job& job) const {
  return kernels::cuda::goesAsTransfers(request(job));
}

// As launch::GpuBatcher does.
void Member::launchParts(const Job& job) {
  wire::GpuTransfers work{};
  work.view = view_;
  work.reduction.type = job.type;
  work.reduction.op = job.op;
  work.reduction.scalar = job.scalar;
  const GpuRequest asked = request(job);
  const auto list = kernels::cuda::transferParts(
      asked, {.input = job.input, .output = job.output, .self = rank_, .root = job.root});
  const bool folds = kernels::cuda::transferKernelOf(asked).image != kernels::cuda::kMoveImage;
  const uint64_t bytes = job.count * sizeOf(job.type);
  const auto shape = kernels::cuda::shapeTransfer(bytes, asked);
  int16_t grid = 0;
  for (int32_t i = 0; i < list.count; ++i) {
    const kernels::cuda::TransferPart& part = list.parts[static_cast<size_t>(i)];
    wire::GpuTransfer& entry = work.transfers[work.transferCount++];
    const bool isCopy = part.peer == rank_;
    entry.buffer = part.buffer;
    entry.source = part.source;
    entry.bytes = bytes;
    entry.signature = signatureOf(job);
    entry.peer = static_cast<int16_t>(part.peer);
    entry.firstBlock = grid;
    entry.blocks = static_cast<int16_t>(shape.blocks);
    entry.messages = isCopy || folds ? wire::GpuMessages::kSlots : shape.messages;
    entry.isSend = part.isSend;
    entry.tellsPlace = shape.tellsPlace && !isCopy && !folds;
    entry.isInPlace = part.isInPlace;
    entry.pull = shape.pull;
    grid = static_cast<int16_t>(grid + entry.blocks);
  }
  GpuChoice choice = kernels::cuda::transferKernelOf(asked);
  choice.startsEarly = kernels::cuda::startsEarly(grid, asked.ranksPerDevice);
  launch(choice, {.blocks = grid, .threads = choice.threads, .sharedBytes = 0}, &work);
}

void Member::transfer(std::span<const Transfer> transfers) {
  wire::GpuTransfers work{};
  work.view = view_;
  const GpuRequest limits = request({.collective = Collective::kSend});
  int16_t grid = 0;
  for (const Transfer& transfer : transfers) {
    wire::GpuTransfer& entry = work.transfers[work.transferCount++];
    entry.buffer = static_cast<std::byte*>(transfer.buffer);
    entry.bytes = transfer.bytes;
    entry.signature = static_cast<uint32_t>(transfer.bytes * 2654435761U + 1);
    entry.peer = static_cast<int16_t>(transfer.peer);
    entry.firstBlock = grid;
    const auto shape = kernels::cuda::shapeTransfer(transfer.bytes, limits);
    entry.blocks = static_cast<int16_t>(shape.blocks);
    entry.messages = shape.messages;
    entry.isSend = transfer.isSend;
    entry.tellsPlace = shape.tellsPlace;
    if (team_.options().sharesBuffers) entry.reach = entry.buffer;
    grid = static_cast<int16_t>(grid + entry.blocks);
  }
  GpuChoice choice = kernels::cuda::transferKernel();
  choice.startsEarly = kernels::cuda::startsEarly(grid, limits.ranksPerDevice);
  launch(choice, {.blocks = grid, .threads = choice.threads, .sharedBytes = 0}, &work);
}

}  // namespace tutti::bench
