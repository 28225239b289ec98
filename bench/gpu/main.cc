// gpu_kernels_bench: the GPU kernels alone, checked and timed.
//
//   gpu_kernels_bench check [--ranks 2,4] [--gpus 1] [--short]
//   gpu_kernels_bench time  [--ranks 4] [--gpus 4] [--ops all_reduce,…] [--min 1K] [--max 1G]
//                           [--nccl path/to/libnccl.so.2] [--json file] [--blocks 64] [--chunk 64K]
//                           [--line-bytes 65536] [--stage-bytes 131072] [--no-early]
//                           [--wide-bytes 4194304] [--transfer-bytes 8388608] [--lanes 64]
//                           [--no-bulk] [--images folder with 0.fatbin, 1.fatbin, …]
//   gpu_kernels_bench steps [--sizes 4K,64K,256K,1M,4M]   those of the host's executor on a GPU
//   The first two with [--shared]: outputs are written directly, as if they were registered.
#include <cstring>
#include <map>
#include <sstream>
#include <string>

#include "check.h"
#include "steps.h"
#include "timing.h"

namespace {

using tutti::Collective;
using tutti::DataType;
using tutti::bench::checkAll;
using tutti::bench::Team;
using tutti::bench::TeamOptions;
using tutti::bench::timeAll;
using tutti::bench::TimingOptions;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

uint64_t parseBytes(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  switch (*end) {
    case 'K': return value << 10;
    case 'M': return value << 20;
    case 'G': return value << 30;
    default: return value;
  }
}

using Arguments = std::map<std::string, std::string>;

std::string get(const Arguments& arguments, const std::string& name, const std::string& otherwise) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : found->second;
}

std::vector<Collective> parseCollectives(const std::string& text) {
  const std::map<std::string, Collective> names = {{"all_reduce", Collective::kAllReduce},
                                                   {"all_gather", Collective::kAllGather},
                                                   {"reduce_scatter", Collective::kReduceScatter},
                                                   {"broadcast", Collective::kBroadcast},
                                                   {"reduce", Collective::kReduce},
                                                   {"alltoall", Collective::kAllToAll},
                                                   {"gather", Collective::kGather},
                                                   {"scatter", Collective::kScatter},
                                                   {"sendrecv", Collective::kSend}};
  std::vector<Collective> list;
  for (const std::string& name : split(text)) {
    const auto found = names.find(name);
    if (found != names.end()) list.push_back(found->second);
  }
  return list;
}

TeamOptions teamOptions(const Arguments& arguments, int ranks) {
  return {.ranks = ranks,
          .gpus = std::min(ranks, std::stoi(get(arguments, "gpus", "1"))),
          .timeoutMs = std::stoull(get(arguments, "timeout-ms", "3000")),
          .maxBlocks = std::stoi(get(arguments, "blocks", "64")),
          .lanes = std::stoi(get(arguments, "lanes", "0")),
          .lineBytes = std::stoll(get(arguments, "line-bytes", "-1")),
          .stageBytes = std::stoll(get(arguments, "stage-bytes", "-1")),
          .wideBytes = std::stoll(get(arguments, "wide-bytes", "-1")),
          .transferBytes = std::stoll(get(arguments, "transfer-bytes", "-1")),
          .startsEarly = !arguments.contains("no-early"),
          .movesByBulk = !arguments.contains("no-bulk"),
          .chunkBytes = static_cast<uint32_t>(parseBytes(get(arguments, "chunk", "0"))),
          .sharesBuffers = arguments.contains("shared"),
          .images = get(arguments, "images", "")};
}

int check(const Arguments& arguments) {
  int failures = 0;
  for (const std::string& ranks : split(get(arguments, "ranks", "2"))) {
    Team team(teamOptions(arguments, std::stoi(ranks)));
    failures += checkAll(team, {.isShort = arguments.contains("short"),
                                .seed = std::stoull(get(arguments, "seed", "1"))});
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

int time(const Arguments& arguments) {
  TimingOptions options;
  options.collectives = parseCollectives(get(
      arguments, "ops", "all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,sendrecv"));
  const uint64_t factor = std::stoull(get(arguments, "factor", "4"));
  for (uint64_t bytes = parseBytes(get(arguments, "min", "1K"));
       bytes <= parseBytes(get(arguments, "max", "1G")); bytes *= factor) {
    options.sizes.push_back(bytes);
  }
  options.nccl = get(arguments, "nccl", "");
  options.output = get(arguments, "json", "");
  options.label = get(arguments, "label", "");
  options.secondsPerCell = std::stod(get(arguments, "seconds", "0.01"));
  options.eager = !arguments.contains("no-eager");
  options.graph = !arguments.contains("no-graph");
  options.type = static_cast<DataType>(std::stoi(get(arguments, "type", "7")));
  for (const std::string& ranks : split(get(arguments, "ranks", "2"))) {
    Team team(teamOptions(arguments, std::stoi(ranks)));
    timeAll(team, options);
  }
  return 0;
}

int steps(const Arguments& arguments) {
  tutti::bench::StepOptions options;
  for (const std::string& size : split(get(arguments, "sizes", "4K,64K,256K,1M,4M")))
    options.sizes.push_back(parseBytes(size));
  return tutti::bench::timeSteps(options);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 2; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) != 0) continue;
    const bool hasValue = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
    arguments[argv[i] + 2] = hasValue ? argv[i + 1] : "";
  }
  // A stream a rank must have a queue of its own, or ranks on one GPU wait for each other's start.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "check") return check(arguments);
  if (what == "time") return time(arguments);
  if (what == "steps") return steps(arguments);
  std::fprintf(
      stderr,
      "gpu_kernels_bench check|time|steps; the head of bench/gpu/main.cc lists the options\n");
  return 2;
}
