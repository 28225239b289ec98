// Captured calls whose calls of the driver fail, and which of these are made at all.
#include <dlfcn.h>

#include <string>
#include <string_view>
#include <tuple>

#include "tests/fakes/fake_cuda.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::HasSubstr;

void fail(const char* call) {
  static auto* failNext = reinterpret_cast<int (*)(const FakeCudaFault*)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "fakeCudaFail"));
  ASSERT_NE(failNext, nullptr) << "another driver's here";
  const FakeCudaFault fault{.call = call, .number = 1, .result = 2, .isSticky = 0, .device = -1};
  failNext(call != nullptr ? &fault : nullptr);
}

// As 2.29 has it.
struct Config {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int graphUsageMode = NCCL_CONFIG_UNDEF_INT;

  explicit Config(int mode) : graphUsageMode(mode) {
    config.size = sizeof *this;
    config.version = NCCL_VERSION(2, 29, 0);
  }
};

// A graph that nothing else runs beside needs no event's nodes, however the program says so.
TEST(CaptureFaults, AreErrorsThatNameTheCallWhereItIsMade) {
  auto gpu = RankGpu::open(0, 0);
  ASSERT_TRUE(gpu.ok());
  Array<float> data(*gpu.value(), 100, 1);
  const auto stream = static_cast<cudaStream_t>(gpu.value()->stream());
  for (const int mode : {NCCL_CONFIG_UNDEF_INT, 2, 1, 0}) {
    for (const std::string_view call :
         {"cuUserObjectCreate", "cuGraphRetainUserObject", "cuGraphAddEventWaitNode",
          "cuStreamUpdateCaptureDependencies", "cuGraphAddEventRecordNode"}) {
      Config config(mode);
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config.config), ncclSuccess);
      ncclResult_t result = ncclSuccess;
      std::ignore = gpu.value()->capture([&]() -> Status {
        fail(call.data());
        result = ncclAllReduce(data.device(), data.device(), data.size(), ncclFloat32, ncclSum,
                               comm, stream);
        return {};
      });
      const bool mixes = mode == 2 || mode == NCCL_CONFIG_UNDEF_INT;
      const bool isMade = mixes || call.find("UserObject") != call.npos;
      EXPECT_EQ(result, isMade ? ncclUnhandledCudaError : ncclSuccess) << call << " " << mode;
      if (isMade) {
        EXPECT_THAT(std::string(ncclGetLastError(comm)), HasSubstr(call));
      }
      fail(nullptr);
      EXPECT_NCCL(ncclCommDestroy(comm));
    }
  }
}

}  // namespace
}  // namespace tutti::gputest
