#include "check.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "kernels/kernels.h"

namespace tutti::bench {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kGuardBytes = 256;
constexpr std::byte kPoison{0xa5};

// ---- data
// ----------------------------------------------------------------------------------------

// A value of the type near small integers, so that sums, products and quotients round in
// interesting places; now and then any bits at all: NaN, infinities, denormals.
uint64_t makeBits(DataType type, std::mt19937_64& random) {
  const uint64_t any = random();
  if (any % 61 == 0) return random();
  const double value = (static_cast<double>(any >> 11) * 0x1p-53 - 0.5) * 6.0;
  const auto real = static_cast<float>(value);
  uint32_t word = 0;
  std::memcpy(&word, &real, 4);
  uint64_t bits = 0;
  switch (type) {
    case DataType::kFloat32: return word;
    case DataType::kFloat64: std::memcpy(&bits, &value, 8); return bits;
    case DataType::kBfloat16: return word >> 16;
    case DataType::kFloat16:
      return (word >> 16 & 0x8000) |
             ((word & 0x7fffffff) < 0x38800000 ? 0 : ((word & 0x7fffffff) - 0x38000000) >> 13);
    case DataType::kFloat8E4M3: return any & 0xbf;
    case DataType::kFloat8E5M2: return any & 0xcf;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return any;
  }
  return any;
}

Bytes makeData(DataType type, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t size = sizeOf(type);
  Bytes data(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = makeBits(type, random);
    std::memcpy(data.data() + i * size, &bits, size);
  }
  return data;
}

// ---- the case and its truth
// ----------------------------------------------------------------------

struct Case {
  Job job;
  size_t shift = 0;  // bytes off a 256-byte boundary, of both buffers
  bool inPlace = false;
};

size_t inputCount(const Case& test, int ranks) {
  const bool isWide = test.job.collective == Collective::kReduceScatter ||
                      test.job.collective == Collective::kAllToAll ||
                      test.job.collective == Collective::kScatter;
  return test.job.count * static_cast<size_t>(isWide ? ranks : 1);
}

size_t outputCount(const Case& test, int ranks) {
  const bool isWide = test.job.collective == Collective::kAllGather ||
                      test.job.collective == Collective::kAllToAll ||
                      test.job.collective == Collective::kGather;
  return test.job.count * static_cast<size_t>(isWide ? ranks : 1);
}

bool hasOutput(const Case& test, int rank) {
  const bool isRooted =
      test.job.collective == Collective::kReduce || test.job.collective == Collective::kGather;
  return !isRooted || rank == test.job.root;
}

kernels::Scalar scalarOf(uint64_t bits) {
  kernels::Scalar scalar;
  std::memcpy(scalar.bytes, &bits, sizeof bits);
  return scalar;
}

// What every rank's output must be; all inputs known.
class Truth {
 public:
  Truth(const Case& test, const std::vector<Bytes>& inputs)
      : test_(test), inputs_(inputs), size_(sizeOf(test.job.type)) {
    const auto c = test.job.collective;
    if (c == Collective::kAllReduce || c == Collective::kReduce) {
      folded_.push_back(fold(0));
    } else if (c == Collective::kReduceScatter) {
      for (size_t r = 0; r < inputs.size(); ++r) folded_.push_back(fold(r * test.job.count));
    }
  }

  Bytes output(size_t rank) const {
    const size_t block = test_.job.count * size_;
    const auto root = static_cast<size_t>(test_.job.root);
    Bytes out;
    const auto append = [&](size_t from, size_t index) {
      const auto first = inputs_[from].begin() + static_cast<ptrdiff_t>(index * block);
      out.insert(out.end(), first, first + static_cast<ptrdiff_t>(block));
    };
    switch (test_.job.collective) {
      case Collective::kAllReduce:
      case Collective::kReduce: return folded_[0];
      case Collective::kReduceScatter: return folded_[rank];
      case Collective::kBroadcast: append(root, 0); break;
      case Collective::kScatter: append(root, rank); break;
      case Collective::kAllGather:
      case Collective::kGather:
        for (size_t r = 0; r < inputs_.size(); ++r) append(r, 0);
        break;
      case Collective::kAllToAll:
        for (size_t r = 0; r < inputs_.size(); ++r) append(r, rank);
        break;
      case Collective::kSend:
      case Collective::kRecv: break;
    }
    return out;
  }

 private:
  Bytes fold(size_t firstElement) const {
    const size_t count = test_.job.count;
    const auto ranks = static_cast<int32_t>(inputs_.size());
    kernels::FoldSpec spec{.type = test_.job.type,
                           .op = test_.job.op,
                           .rankCount = ranks,
                           .preScale = scalarOf(test_.job.scalar)};
    std::vector<Bytes> scaled;
    std::vector<const void*> sources;
    for (const Bytes& input : inputs_) {
      const std::byte* from = input.data() + firstElement * size_;
      if (test_.job.op == ReduceOp::kPreMulSum) {  // rounded on the rank that owns it
        scaled.emplace_back(count * size_);
        void* to = scaled.back().data();
        const void* one = from;
        kernels::fold(spec, {.sources = {&one, 1},
                             .destinations = {&to, 1},
                             .elementCount = count,
                             .scaledSource = 0});
      }
      sources.push_back(from);
    }
    for (size_t i = 0; i < scaled.size(); ++i) sources[i] = scaled[i].data();
    Bytes out(count * size_);
    void* to = out.data();
    if (test_.job.op == ReduceOp::kPreMulSum) spec.op = ReduceOp::kSum;
    kernels::fold(
        spec, {.sources = sources, .destinations = {&to, 1}, .elementCount = count, .post = true});
    return out;
  }

  const Case& test_;
  const std::vector<Bytes>& inputs_;
  const size_t size_;
  std::vector<Bytes> folded_;
};

std::string describe(const Case& test, const Member& member) {
  const auto choice = *kernels::cuda::choose(member.request(test.job));
  char text[256];
  std::snprintf(
      text, sizeof text, "%s %s %s count %" PRIu64 " root %d shift %zu%s (%s %s, %d blocks)",
      name(test.job.collective).data(), name(test.job.type).data(), name(test.job.op).data(),
      test.job.count, test.job.root, test.shift, test.inPlace ? " in place" : "",
      choice.protocol.data(), choice.algorithm.data(), choice.blocks);
  return text;
}

// ---- running cases
// -------------------------------------------------------------------------------

// Buffers of one rank for one case, in a slab: guard, data, guard.
struct Placed {
  std::byte* input;
  std::byte* output;
  size_t bytes;  // of the slab used
};

size_t padded(size_t bytes) { return (bytes + 2 * kGuardBytes + 511) / 256 * 256; }

Placed place(const Case& test, std::byte* slab, int rank, int ranks) {
  const size_t size = sizeOf(test.job.type);
  const size_t in = inputCount(test, ranks) * size;
  const size_t out = outputCount(test, ranks) * size;
  const size_t block = test.job.count * size;
  Placed placed{};
  if (test.inPlace) {
    std::byte* base = slab + kGuardBytes + test.shift;
    placed.bytes = padded(std::max(in, out) + test.shift);
    const bool gathers = out > in;
    const bool scatters = in > out;
    placed.input = base + (gathers ? static_cast<size_t>(rank) * block : 0);
    placed.output = base + (scatters ? static_cast<size_t>(rank) * block : 0);
  } else {
    placed.input = slab + kGuardBytes + test.shift;
    placed.output = slab + padded(in + test.shift) + kGuardBytes + test.shift;
    placed.bytes = padded(in + test.shift) + padded(out + test.shift);
  }
  return placed;
}

// Runs a batch of cases back to back, without waiting in between, and checks all of them.
class Batch {
 public:
  Batch(Team& team, std::vector<Case> cases, uint64_t seed)
      : team_(team), cases_(std::move(cases)), seed_(seed) {}

  int run(bool inOneLaunch) {
    const auto ranks = static_cast<size_t>(team_.ranks());
    inputs_.resize(cases_.size(), std::vector<Bytes>(ranks));
    team_.run([&](Member& member) { runRank(member, inOneLaunch); });
    return failures_;
  }

 private:
  void runRank(Member& member, bool inOneLaunch) {
    const int ranks = team_.ranks();
    const auto rank = static_cast<size_t>(member.rank());
    size_t total = 0;
    for (const Case& test : cases_) total += place(test, nullptr, 0, ranks).bytes;
    const DeviceBuffer slab(total + 4096);
    TUTTI_CU(cuMemsetD8(slab.address(), static_cast<unsigned char>(kPoison), slab.bytes()));
    std::vector<Placed> places;
    std::vector<Job> jobs;
    size_t used = 0;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Case& test = cases_[i];
      Placed placed = place(test, slab.at(used), member.rank(), ranks);
      used += placed.bytes;
      inputs_[i][rank] =
          makeData(test.job.type, inputCount(test, ranks), seed_ * 977 + i * 64 + rank);
      TUTTI_CU(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(placed.input), inputs_[i][rank].data(),
                            inputs_[i][rank].size()));
      Job job = test.job;
      job.input = placed.input;
      job.output = placed.output;
      places.push_back(placed);
      jobs.push_back(job);
    }
    TUTTI_CU(cuCtxSynchronize());
    team_.meet();
    if (inOneLaunch) {
      member.launch(jobs);
    } else {
      for (const Job& job : jobs) member.launch(job);
    }
    member.synchronize();
    team_.meet();
    const auto& error = member.error();
    if (error.fault != 0) {
      fail(member, cases_[0],
           "fault " + std::to_string(error.fault) + " awaiting rank " + std::to_string(error.peer) +
               " block " + std::to_string(error.block) + " number " + std::to_string(error.number));
      return;
    }
    Bytes all(slab.bytes());
    TUTTI_CU(cuMemcpyDtoH(all.data(), slab.address(), slab.bytes()));
    for (size_t i = 0; i < cases_.size(); ++i) {
      verify(member, i, places[i], {all.data(), slab.at(0)});
    }
  }

  struct Image {
    const std::byte* host;
    const std::byte* device;
    const std::byte* at(const std::byte* address) const { return host + (address - device); }
  };

  void verify(Member& member, size_t index, const Placed& placed, const Image& image) {
    const Case& test = cases_[index];
    const size_t size = sizeOf(test.job.type);
    const size_t out = outputCount(test, team_.ranks()) * size;
    const std::byte* got = image.at(placed.output);
    if (!hasOutput(test, member.rank())) {
      if (!test.inPlace && !isPoison(got, out)) fail(member, test, "wrote an output it has not");
    } else {
      const Bytes want = Truth(test, inputs_[index]).output(static_cast<size_t>(member.rank()));
      const auto [a, b] = std::mismatch(want.begin(), want.end(), got);
      if (a != want.end()) {
        const auto at = static_cast<size_t>(a - want.begin()) / size;
        uint64_t w = 0;
        uint64_t g = 0;
        std::memcpy(&w, want.data() + at * size, size);
        std::memcpy(&g, got + at * size, size);
        char text[160];
        std::snprintf(text, sizeof text, "element %zu is %" PRIx64 ", wanted %" PRIx64, at, g, w);
        fail(member, test, text);
      }
      if (!test.inPlace &&
          (!isPoison(got - kGuardBytes, kGuardBytes) || !isPoison(got + out, kGuardBytes))) {
        fail(member, test, "wrote outside of its output");
      }
    }
    if (!test.inPlace &&
        std::memcmp(image.at(placed.input),
                    inputs_[index][static_cast<size_t>(member.rank())].data(),
                    inputs_[index][static_cast<size_t>(member.rank())].size()) != 0) {
      fail(member, test, "changed its input");
    }
  }

  static bool isPoison(const std::byte* at, size_t bytes) {
    return std::all_of(at, at + bytes, [](std::byte b) { return b == kPoison; });
  }

  void fail(const Member& member, const Case& test, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (++failures_ <= 2) {
      std::printf("FAIL rank %d of %d: %s: %s\n", member.rank(), team_.ranks(),
                  describe(test, member).c_str(), what.c_str());
    }
  }

  Team& team_;
  const std::vector<Case> cases_;
  const uint64_t seed_;
  std::vector<std::vector<Bytes>> inputs_;  // [case][rank]
  std::mutex mutex_;
  int failures_ = 0;
};

// ---- which cases
// ---------------------------------------------------------------------------------

constexpr Collective kFolding[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                   Collective::kReduce};
constexpr Collective kMoving[] = {Collective::kAllGather, Collective::kAllToAll,
                                  Collective::kBroadcast, Collective::kGather,
                                  Collective::kScatter};

std::vector<Case> typeCases(int ranks, bool isShort) {
  std::vector<Case> cases;
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      std::mt19937_64 random(static_cast<uint64_t>(t * 8 + o));
      for (const Collective collective : kFolding) {
        for (const uint64_t count : {uint64_t{1003}, uint64_t{400'003}}) {
          if (isShort && (count > 2000 || (t + o) % 5 != 0)) continue;
          const uint64_t elements = count > 2000 ? count / sizeOf(type) : count;
          cases.push_back({.job = {.collective = collective,
                                   .type = type,
                                   .op = static_cast<ReduceOp>(o),
                                   .count = elements,
                                   .root = (t + o) % ranks,
                                   .scalar = makeBits(type, random)},
                           .inPlace = (t + o) % 3 == 0});
        }
      }
    }
  }
  return cases;
}

std::vector<Case> sizeCases(int ranks, bool isShort) {
  std::vector<Case> cases;
  const auto add = [&](Collective collective, DataType type, uint64_t bytes, int variant) {
    const size_t size = sizeOf(type);
    cases.push_back({.job = {.collective = collective,
                             .type = type,
                             .count = std::max<uint64_t>(1, bytes / size),
                             .root = static_cast<int>((bytes + static_cast<uint64_t>(variant)) %
                                                      static_cast<uint64_t>(ranks))},
                     .shift = variant == 1 ? size : 0,
                     .inPlace = variant == 2});
  };
  for (const uint64_t bytes :
       {1, 9, 100, 4096, 20'007, 65'536, 130'001, 262'152, 1'000'001, 6'291'461, 20'000'003}) {
    if (isShort && bytes > 300'000) continue;
    for (int variant = 0; variant < 3; ++variant) {
      if (isShort && variant != static_cast<int>(bytes % 3)) continue;
      for (const Collective collective : kFolding) {
        add(collective, DataType::kFloat32, bytes, variant);
        if (bytes < 1'000'000) add(collective, DataType::kBfloat16, bytes, variant);
      }
      for (const Collective collective : kMoving) {
        const bool noInPlace = variant == 2 && collective == Collective::kBroadcast;
        add(collective, DataType::kInt8, bytes, noInPlace ? 0 : variant);
        if (bytes < 1'000'000) add(collective, DataType::kFloat32, bytes, variant);
      }
    }
  }
  return cases;
}

// Any call after any other, sizes and roots at random: what one leaves behind meets the next.
std::vector<Case> mixedCases(int ranks, uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<Case> cases;
  for (size_t i = 0; i < count; ++i) {
    const bool folds = random() % 2 == 0;
    const uint64_t bits = 2 + random() % 19;
    cases.push_back({.job = {.collective = folds ? kFolding[random() % std::size(kFolding)]
                                                 : kMoving[random() % std::size(kMoving)],
                             .type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kFloat16,
                             .count = 1 + random() % (uint64_t{1} << bits) / 4,
                             .root = static_cast<int>(random() % static_cast<uint64_t>(ranks))}});
  }
  return cases;
}

// ---- sends and receives
// --------------------------------------------------------------------------

// In turn: everybody sends to everybody, each rank to the next, and rank 0 and the others to each
// other. Sizes by pair and round.
int checkTransfers(Team& team, bool isShort) {
  std::atomic<int> failures{0};
  const int ranks = team.ranks();
  const auto doesSend = [&](int from, int to, int round) {
    if (round % 3 == 1) return to == (from + 1) % ranks;
    return round % 3 == 0 || from == 0 || to == 0;
  };
  const auto bytesOf = [&](int from, int to, int round) -> uint64_t {
    constexpr uint64_t kSizes[] = {1, 1000, 8192, 70'001, 1'000'003, 5'000'000};
    const bool isLong = round % 3 != 0 && round % 6 < 3;
    const auto which = static_cast<size_t>(from * 3 + to * 5 + round) % (isShort ? 4 : 6);
    return kSizes[isLong ? 4 + which % 2 : which] + static_cast<uint64_t>(round);
  };
  const int rounds = isShort ? 8 : 24;
  team.run([&](Member& member) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<std::pair<Bytes, std::pair<DeviceBuffer*, size_t>>> wanted;
    std::vector<std::vector<Member::Transfer>> launches;
    for (int round = 0; round < rounds; ++round) {
      std::vector<Member::Transfer>& list = launches.emplace_back();
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == member.rank()) continue;
        const size_t shift = static_cast<size_t>(round % 3);
        const auto seed = [&](int from, int to) {
          return static_cast<uint64_t>((round * 8 + from) * 8 + to);
        };
        const uint64_t out = bytesOf(member.rank(), peer, round);
        const uint64_t in = bytesOf(peer, member.rank(), round);
        if (doesSend(member.rank(), peer, round)) {
          buffers.push_back(std::make_unique<DeviceBuffer>(out + 16));
          const Bytes data = makeData(DataType::kInt8, out, seed(member.rank(), peer));
          TUTTI_CU(cuMemcpyHtoD(buffers.back()->address() + shift, data.data(), out));
          list.push_back({true, peer, buffers.back()->at(shift), out});
        }
        if (!doesSend(peer, member.rank(), round)) continue;
        buffers.push_back(std::make_unique<DeviceBuffer>(in + 16));
        TUTTI_CU(cuMemsetD8(buffers.back()->address(), 0xa5, in + 16));
        list.push_back({false, peer, buffers.back()->at(shift), in});
        wanted.push_back({makeData(DataType::kInt8, in, seed(peer, member.rank())),
                          {buffers.back().get(), shift}});
      }
    }
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    for (const auto& list : launches) member.transfer(list);
    member.synchronize();
    team.meet();
    if (member.error().fault != 0) {
      std::printf("FAIL rank %d: transfers: fault %u awaiting rank %d\n", member.rank(),
                  member.error().fault, member.error().peer);
      ++failures;
      return;
    }
    for (const auto& [data, where] : wanted) {
      Bytes got(data.size() + 1);
      TUTTI_CU(cuMemcpyDtoH(got.data(), where.first->address() + where.second, got.size()));
      if (std::memcmp(got.data(), data.data(), data.size()) != 0 || got.back() != kPoison) {
        std::printf("FAIL rank %d: received %zu bytes wrong\n", member.rank(), data.size());
        ++failures;
      }
    }
  });
  return failures;
}

// ---- failing well
// --------------------------------------------------------------------------------

// Rank 0 does not come (or calls something else): the others must end, with the right reason.
enum class Misdeed { kAbsent, kOtherCount, kOtherSize, kAborted };

int checkMisdeed(Team& team, Misdeed misdeed, uint64_t count) {
  std::atomic<int> failures{0};
  team.run([&](Member& member) {
    const DeviceBuffer buffer(count * 8);
    TUTTI_CU(cuMemsetD8(buffer.address(), 1, buffer.bytes()));
    member.view().timeoutNs = misdeed == Misdeed::kAborted ? 0 : 300'000'000;
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    Job job{.collective = Collective::kAllReduce,
            .count = count,
            .input = buffer.at(0),
            .output = buffer.at(0)};
    const bool isBad = member.rank() == 0;
    if (isBad && misdeed == Misdeed::kOtherCount) job.count = count - 1;
    if (isBad && misdeed == Misdeed::kOtherSize) job.count = 1;
    const bool isAbsent = isBad && (misdeed == Misdeed::kAbsent || misdeed == Misdeed::kAborted);
    if (!isAbsent) member.launch(job);
    if (!isBad && misdeed == Misdeed::kAborted) member.abortWord() = 1;
    member.synchronize();
    const auto fault = static_cast<wire::GpuFault>(member.error().fault);
    const bool isRight =
        misdeed == Misdeed::kAborted ? fault == wire::GpuFault::kAborted
        : misdeed == Misdeed::kAbsent
            ? fault == wire::GpuFault::kTimedOut && member.error().peer == 0
            : fault == wire::GpuFault::kMismatch || fault == wire::GpuFault::kTimedOut;
    if (!isAbsent && !isRight && !(isBad && fault == wire::GpuFault::kNone)) {
      std::printf("FAIL rank %d: misdeed %d count %" PRIu64 ": fault %u peer %d\n", member.rank(),
                  static_cast<int>(misdeed), count, member.error().fault, member.error().peer);
      ++failures;
    }
    if (misdeed == Misdeed::kOtherCount && member.rank() == 1) {
      std::printf("  other count of %" PRIu64 ": rank 1 says fault %u, rank %d\n", count,
                  member.error().fault, member.error().peer);
    }
    team.meet();
    member.view().timeoutNs = team.options().timeoutMs * 1'000'000;
  });
  team.reset();
  return failures;
}

// One captured graph, replayed between calls of other sizes.
int checkGraph(Team& team) {
  std::atomic<int> failures{0};
  team.run([&](Member& member) {
    constexpr uint64_t kCounts[] = {100, 200'000};
    const DeviceBuffer buffer(1 << 20);
    const auto fill = [&](uint32_t value) {
      TUTTI_CU(cuMemsetD32(buffer.address(), value, (1 << 20) / 4));
    };
    CUgraph graph;
    CUgraphExec exec;
    TUTTI_CU(cuStreamBeginCapture(member.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    for (const uint64_t count : kCounts) {
      member.launch(Job{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .count = count,
                        .input = buffer.at(0),
                        .output = buffer.at(0)});
    }
    TUTTI_CU(cuStreamEndCapture(member.stream(), &graph));
    TUTTI_CU(cuGraphInstantiate(&exec, graph, 0));
    uint64_t wanted = 1;
    const auto n = static_cast<uint64_t>(team.ranks());
    fill(1);
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    for (int round = 0; round < 5; ++round) {
      TUTTI_CU(cuGraphLaunch(exec, member.stream()));
      member.launch(Job{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .count = 100u + 5000u * static_cast<unsigned>(round),
                        .input = buffer.at(0),
                        .output = buffer.at(0)});
      wanted = static_cast<uint32_t>(wanted * n * n * n);
    }
    member.synchronize();
    uint32_t got = 0;
    TUTTI_CU(cuMemcpyDtoH(&got, buffer.address() + 4 * 99, 4));
    if (got != wanted || member.error().fault != 0) {
      std::printf("FAIL rank %d: graph replay gives %u, wanted %" PRIu64 ", fault %u\n",
                  member.rank(), got, wanted, member.error().fault);
      ++failures;
    }
    team.meet();
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
  });
  return failures;
}

int runBatches(Team& team, const std::vector<Case>& cases, size_t batchSize, bool inOneLaunch) {
  int failures = 0;
  for (size_t i = 0; i < cases.size() && failures < 12; i += batchSize) {
    const auto first = cases.begin() + static_cast<ptrdiff_t>(i);
    const auto last = cases.begin() + static_cast<ptrdiff_t>(std::min(cases.size(), i + batchSize));
    const int failed = Batch(team, {first, last}, i + 1).run(inOneLaunch);
    failures += failed;
    if (failed > 0) team.reset();
  }
  return failures;
}

}  // namespace

int checkAll(Team& team, const CheckOptions& options) {
  const bool isShort = options.isShort;
  int failures = 0;
  const auto report = [&](const char* what, size_t cases, int failed) {
    failures += failed;
    std::printf("check %d ranks on %d GPUs: %-10s %5zu cases, %d failed\n", team.ranks(),
                team.options().gpus, what, cases, failed);
    std::fflush(stdout);
  };
  const auto sizes = sizeCases(team.ranks(), isShort);
  report("sizes", sizes.size(), runBatches(team, sizes, 8, false));
  const auto types = typeCases(team.ranks(), isShort);
  report("types", types.size(), runBatches(team, types, 12, false));
  const auto mixed = mixedCases(team.ranks(), options.seed, isShort ? 40 : 400);
  report("mixed", mixed.size(), runBatches(team, mixed, isShort ? 40 : 200, false));
  report("grouped", mixed.size(), runBatches(team, mixed, isShort ? 40 : 200, true));
  report("transfers", 1, checkTransfers(team, isShort));
  report("graph", 1, checkGraph(team));
  if (team.ranks() > 1 && !isShort) {
    int failed = 0;
    for (const uint64_t count : {uint64_t{100}, uint64_t{1'000'000}}) {
      for (const Misdeed misdeed :
           {Misdeed::kAbsent, Misdeed::kOtherCount, Misdeed::kOtherSize, Misdeed::kAborted}) {
        failed += checkMisdeed(team, misdeed, count);
      }
    }
    report("failing", 8, failed);
  }
  return failures;
}

}  // namespace tutti::bench
