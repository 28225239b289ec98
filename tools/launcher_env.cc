#include "tools/launcher_env.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tutti::tools {
namespace {

// The variables of one launcher. Null: it has none of that kind.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* localSize;
  const char* nodeCount;
  const char* required;               // present only in processes that it started as ranks
  std::array<const char*, 3> jobIds;  // together they name the job
};

// Innermost first: torchrun and tutti run may be started by mpirun or srun, not the other way.
// A Slurm batch script has SLURM_PROCID too, but no SLURM_STEP_ID: it is no rank.
constexpr std::array kLaunchers = {
    Launcher{"torchrun",
             "RANK",
             "WORLD_SIZE",
             "LOCAL_WORLD_SIZE",
             nullptr,
             "MASTER_PORT",
             {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    // By hand, by ssh, or by a launcher that nobody here knows.
    Launcher{"whoever set RANK",
             "RANK",
             "WORLD_SIZE",
             "LOCAL_WORLD_SIZE",
             nullptr,
             "NCCL_COMM_ID",
             {"NCCL_COMM_ID", nullptr, nullptr}},
    Launcher{"Open MPI",
             "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_SIZE",
             nullptr,
             nullptr,
             {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", nullptr}},
    Launcher{"PMI",
             "PMI_RANK",
             "PMI_SIZE",
             "MPI_LOCALNRANKS",
             nullptr,
             nullptr,
             {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
    Launcher{"PMIx",
             "PMIX_RANK",
             "SLURM_NTASKS",
             nullptr,
             "SLURM_NNODES",
             "SLURM_STEP_ID",
             {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
    Launcher{"Slurm",
             "SLURM_PROCID",
             "SLURM_NTASKS",
             nullptr,
             "SLURM_NNODES",
             "SLURM_STEP_ID",
             {"SLURM_JOB_ID", "SLURM_STEP_ID", nullptr}},
};

bool isSet(const Lookup& lookup, const char* variable) {
  return variable != nullptr && lookup(variable) != nullptr;
}

Result<int> readNumber(const Lookup& lookup, const char* variable) {
  const std::string_view text(lookup(variable));
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size()) {
    return invalidArgument("{}='{}' is no number: was it meant for tutti? -n starts own ranks",
                           variable, text);
  }
  return int{value};
}

// When the process that started this one began, in clock ticks since boot: tells two parents with
// the same process id apart.
std::string parentStartTime() {
  const std::string path = fmt::format("/proc/{}/stat", ::getppid());
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return "0";
  std::array<char, 1024> text{};
  const size_t length = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  std::string_view rest(text.data(), length);
  rest.remove_prefix(std::min(rest.rfind(')') + 1, rest.size()));  // the name may hold anything
  constexpr int kFieldsBefore = 20;  // starttime is field 22; the name was field 2
  for (int field = 0; field < kFieldsBefore; ++field) {
    rest.remove_prefix(std::min(rest.find(' '), rest.size()));
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  return std::string(rest.substr(0, rest.find(' ')));
}

std::string jobOf(const Lookup& lookup, const Launcher& launcher) {
  std::string job;
  for (const char* variable : launcher.jobIds) {
    if (isSet(lookup, variable)) job += fmt::format("-{}", lookup(variable));
  }
  // Without an id the ranks of a host have their launcher's process in common.
  if (job.empty()) job = fmt::format("-{}-{}", ::getppid(), parentStartTime());
  return job;
}

Result<bool> isOneHost(const Lookup& lookup, const Launcher& launcher, int size) {
  if (isSet(lookup, launcher.localSize)) {
    TUTTI_TRY_ASSIGN(const int localSize, readNumber(lookup, launcher.localSize));
    return bool{localSize == size};
  }
  if (isSet(lookup, launcher.nodeCount)) {
    TUTTI_TRY_ASSIGN(const int nodes, readNumber(lookup, launcher.nodeCount));
    return bool{nodes == 1};
  }
  return true;
}

}  // namespace

Lookup processEnvironment() {
  return [](const char* variable) -> const char* { return std::getenv(variable); };
}

Result<std::optional<LauncherPlace>> detectLauncher(const Lookup& lookup) {
  for (const Launcher& launcher : kLaunchers) {
    if (!isSet(lookup, launcher.rank) || !isSet(lookup, launcher.size)) continue;
    if (launcher.required != nullptr && !isSet(lookup, launcher.required)) continue;
    LauncherPlace place;
    place.launcher = launcher.name;
    TUTTI_TRY_ASSIGN(place.rank, readNumber(lookup, launcher.rank));
    TUTTI_TRY_ASSIGN(place.size, readNumber(lookup, launcher.size));
    if (place.rank < 0 || place.rank >= place.size) {
      return invalidArgument("{}={} is not below {}={}: -n starts own ranks", launcher.rank,
                             place.rank, launcher.size, place.size);
    }
    TUTTI_TRY_ASSIGN(place.isOneHost, isOneHost(lookup, launcher, place.size));
    place.job = jobOf(lookup, launcher);
    return std::optional<LauncherPlace>(place);
  }
  return std::optional<LauncherPlace>();
}

std::string rendezvousPath(const Lookup& lookup, const LauncherPlace& place) {
  constexpr size_t kMaxName = 200;
  const char* runtime = lookup("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool isUsable = runtime != nullptr && *runtime == '/' && ::stat(runtime, &status) == 0 &&
                        S_ISDIR(status.st_mode) && ::access(runtime, W_OK | X_OK) == 0;
  std::string file = fmt::format("tutti-perf-{}{}", ::geteuid(), place.job).substr(0, kMaxName);
  for (char& letter : file) {
    const bool isPlain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                         (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '.';
    if (!isPlain) letter = '_';
  }
  return fmt::format("{}/{}", isUsable ? runtime : "/tmp", file);
}

}  // namespace tutti::tools
