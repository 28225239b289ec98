// The binary interface of profiler plug-ins, versions 1 to 5: the struct of functions that a
// plug-in exports as ncclProfiler_v<N>, the descriptions of events, and the numbers that travel.
// Facts of the interface; a plug-in compiled against its own declarations of them must find these.
#pragma once

#include <nccl.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::comm::profiler_abi {

// Kinds of events, as bits: of a description's type, and of what a plug-in asks for.
enum Kind : uint64_t {
  kGroup = 1u << 0,
  kCollective = 1u << 1,
  kPointToPoint = 1u << 2,
  kProxyOp = 1u << 3,
  kProxyStep = 1u << 4,
  kProxyControl = 1u << 5,
  kKernelChannel = 1u << 6,  // from version 3 on
  kNetPlugin = 1u << 7,
  kGroupApi = 1u << 8,  // from version 5 on, these four
  kCollectiveApi = 1u << 9,
  kPointToPointApi = 1u << 10,
  kKernelLaunch = 1u << 11,
};

// What recordEventState() tells. The first eight are of proxy operations, up to version 3.
enum State : int {
  kSendPosted = 0,
  kSendRemoteWait = 1,
  kSendTransmitted = 2,
  kSendDone = 3,
  kReceivePosted = 4,
  kReceiveReceived = 5,
  kReceiveTransmitted = 6,
  kReceiveDone = 7,
  kStepSendGpuWait = 8,
  kStepSendWait = 9,
  kStepReceiveWait = 10,
  kStepReceiveFlushWait = 11,
  kStepReceiveGpuWait = 12,
  kProxyOpInProgress = 19,  // from version 4 on, these three
  kStepSendPeerWait = 20,
  kKernelChannelStop = 22,
  kGroupStartApiStop = 23,  // from version 5 on
  kGroupEndApiStart = 24,
};

// Numbers that version 1 has where later ones have names.
enum Function : uint8_t {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
  kSend = 6,
  kReceive = 7,
};

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);

struct Collective1 {
  const char* communicator;
  uint64_t communicatorHash;
  uint64_t sequence;
  uint8_t function;
  const void* input;
  void* output;
  size_t count;
  int root;
  uint8_t type;
  uint32_t op;
  size_t trafficBytes;
  uint8_t mostChannels;
  uint8_t warps;
  uint8_t algorithm;
  uint8_t protocol;
  int isCollnet;
  int isNvls;
};
struct Collective2 {
  const char* communicator;
  uint64_t communicatorHash;
  uint64_t sequence;
  const char* function;
  const void* input;
  void* output;
  size_t count;
  int root;
  const char* type;
  size_t trafficBytes;
  uint8_t mostChannels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
  int isCollnet;
  int isNvls;
};
struct Collective3 {
  const char* communicator;
  uint64_t communicatorHash;
  uint64_t sequence;
  const char* function;
  const void* input;
  void* output;
  size_t count;
  int root;
  const char* type;
  uint8_t mostChannels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct Collective4 {
  uint64_t sequence;
  const char* function;
  const void* input;
  void* output;
  size_t count;
  int root;
  const char* type;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct Collective5 : Collective4 {
  void* group;  // the parent that versions before had
};

struct PointToPoint1 {
  const char* communicator;
  uint64_t communicatorHash;
  uint8_t function;
  void* buffer;
  uint8_t type;
  size_t count;
  int peer;
};
struct PointToPoint2 {  // and 3
  const char* communicator;
  uint64_t communicatorHash;
  const char* function;
  void* buffer;
  const char* type;
  size_t count;
  int peer;
};
struct PointToPoint4 {
  const char* function;
  void* buffer;
  const char* type;
  size_t count;
  int peer;
  uint8_t channels;
};
struct PointToPoint5 : PointToPoint4 {
  void* group;
};

struct GroupApi {
  int isCaptured;  // 0 or 1: some plug-ins read it as a bool
  int depth;       // 1: the library's own, of a call by itself
};
struct CollectiveApi {
  const char* function;
  size_t count;
  const char* type;
  int root;
  void* stream;
  bool isCaptured;
};
struct PointToPointApi {
  const char* function;
  size_t count;
  const char* type;
  void* stream;
  bool isCaptured;
};
struct ProxyOp {
  pid_t process;
  uint8_t channel;
  int peer;
  int steps;
  int chunkBytes;
  int isSend;
};
struct ProxyStep {
  int step;
};
struct KernelLaunch {
  void* stream;
};
struct KernelChannel {
  uint8_t channel;
  uint64_t timer;  // from version 4 on
};

// What differs from version to version.
template <int kVersion>
struct Types {
  using Collective = std::conditional_t<
      kVersion == 1, Collective1,
      std::conditional_t<
          kVersion == 2, Collective2,
          std::conditional_t<kVersion == 3, Collective3,
                             std::conditional_t<kVersion == 4, Collective4, Collective5>>>>;
  using PointToPoint = std::conditional_t<
      kVersion == 1, PointToPoint1,
      std::conditional_t<kVersion <= 3, PointToPoint2,
                         std::conditional_t<kVersion == 4, PointToPoint4, PointToPoint5>>>;

  // One event. Larger than any version's: a plug-in may copy what a later minor version has.
  struct Description {
    std::conditional_t<kVersion <= 4, uint8_t, uint64_t> kind;
    void* parent;
    int rank;
    union {
      char room[256];
      Collective collective;
      PointToPoint pointToPoint;
      GroupApi groupApi;
      CollectiveApi collectiveApi;
      PointToPointApi pointToPointApi;
      KernelLaunch kernelLaunch;
      ProxyOp proxyOp;
      ProxyStep proxyStep;
      KernelChannel kernelChannel;
    };
  };

  // What comes with a state.
  union StateArguments {
    struct {  // up to version 3
      size_t bytes;
      int steps;
    } proxyOp;
    struct {  // from version 4 on
      size_t bytes;
    } proxyStep;
    struct {  // the same
      uint64_t timer;
    } kernelChannel;
  };

  using Init1 = ncclResult_t (*)(void** context, int* wanted);
  using Init4 = ncclResult_t (*)(void** context, int* wanted, const char* name, uint64_t hash,
                                 int nodes, int ranks, int rank, Logger logger);
  using Init5 = ncclResult_t (*)(void** context, uint64_t hash, int* wanted, const char* name,
                                 int nodes, int ranks, int rank, Logger logger);
  using Init =
      std::conditional_t<kVersion <= 3, Init1, std::conditional_t<kVersion == 4, Init4, Init5>>;

  struct Functions {
    const char* name;
    Init init;
    ncclResult_t (*startEvent)(void* context, void** event, Description* description);
    ncclResult_t (*stopEvent)(void* event);
    ncclResult_t (*recordEventState)(void* event, int state, StateArguments* arguments);
    ncclResult_t (*finalize)(void* context);
  };
};

}  // namespace tutti::comm::profiler_abi
