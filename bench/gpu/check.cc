#include "check.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "check_parts.h"
#include "data.h"
#include "kernels/kernels.h"

namespace tutti::bench {
namespace {

constexpr size_t kGuardBytes = 256;

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
    report("failing", 8, checkMisdeeds(team));
  }
  return failures;
}

}  // namespace tutti::bench
