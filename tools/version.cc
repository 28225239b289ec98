// tutti version: what this is, what it was built with, whether a CUDA driver is on this machine.
#include "base/version.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "observe/registry.h"
#include "tools/command.h"

namespace tutti::tools {
namespace {

std::string compilerName() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// The driver's library is all that a program needs at run time; the toolkit is not looked for.
bool isCudaDriverPresent() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  ::dlclose(driver);
  return true;
}

nlohmann::ordered_json describe() {
  nlohmann::ordered_json version;
  version["tutti"] = kVersion;
  version["nccl_interface"] = kInterfaceVersion;
  version["nccl_interface_code"] = kInterfaceVersionCode;
  version["compiler"] = compilerName();
  version["build_type"] = TUTTI_BUILD_TYPE;
  version["sanitizers"] = TUTTI_SANITIZERS;
  version["cuda_driver_found"] = isCudaDriverPresent();
  version["nvtx"] = observe::hasCallRanges();
  return version;
}

void print(const nlohmann::ordered_json& version) {
  const std::string sanitizers = version["sanitizers"].get<std::string>();
  const char* cuda = version["cuda_driver_found"].get<bool>()
                         ? "driver found (libcuda.so.1)"
                         : "no driver found (libcuda.so.1): ranks are CPU ranks";
  fmt::print("tutti           {}\n", kVersion);
  fmt::print("NCCL interface  {} ({})\n", kInterfaceVersion, kInterfaceVersionCode);
  fmt::print("compiler        {}\n", version["compiler"].get<std::string>());
  fmt::print("build           {}{}{}\n", TUTTI_BUILD_TYPE,
             sanitizers.empty() ? "" : ", sanitizers ", sanitizers);
  fmt::print("CUDA            {}\n", cuda);
  fmt::print("NVTX            {}\n", version["nvtx"].get<bool>()
                                         ? "ranges around calls"
                                         : "none: built without NVTX3's headers");
}

}  // namespace

void addVersion(CLI::App& app, int& exitCode) {
  auto json = std::make_shared<bool>(false);  // shared by the option and the callback
  CLI::App* command =
      app.add_subcommand("version", "Show the version, the interface and the build");
  command->add_flag("--json", *json, "Print JSON");
  command->footer("Example: tutti version --json");
  command->callback([json, &exitCode] {
    const nlohmann::ordered_json version = describe();
    if (*json) {
      fmt::print("{}\n", version.dump(2));
    } else {
      print(version);
    }
    exitCode = kExitOk;
  });
}

}  // namespace tutti::tools
