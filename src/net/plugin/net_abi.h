// The binary interface of network plug-ins, versions 6 to 11: the struct of functions that a
// plug-in exports as ncclNetPlugin_v<N>, and the numbers that travel. Facts of the interface; a
// plug-in compiled against its own declarations of them must find these.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::net::plugin::abi {

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kHostMemory = 1;  // kinds of memory, as bits
inline constexpr int kGpuMemory = 2;
inline constexpr int kDmaBuffers = 4;  // a GPU's, by a descriptor
inline constexpr int kHostDevice = 0;  // netDeviceType of an adapter that the host drives

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using Profiler = ncclResult_t (*)(void** event, int type, void* parent, int64_t id, void* data);

struct Config {
  int trafficClass = -1;  // none
};

struct VirtualDevice {
  int count;
  int devices[4];
};

// What getProperties() fills; each version has what it has, the rest stays as it is. A plug-in of a
// later minor version may write more, for which there is room.
struct Properties6 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int memoryKinds;
  int speedMbps;
  int port;
  float latencyUs;
  int maxConnections;
  int maxGroupedReceives;
  char room[128];
};
struct Properties7 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int memoryKinds;
  int speedMbps;
  int port;
  float latencyUs;
  int maxConnections;
  int maxGroupedReceives;
  int deviceType;
  int deviceVersion;
  char room[128];
};
struct Properties8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int memoryKinds;
  int registersGlobally;
  int speedMbps;
  int port;
  float latencyUs;
  int maxConnections;
  int maxGroupedReceives;
  int deviceType;
  int deviceVersion;
  char room[128];
};
struct Properties9 {  // and 10; 11 adds one more size
  char* name;
  char* pciPath;
  uint64_t guid;
  int memoryKinds;
  int registersGlobally;
  int forcesFlush;
  int speedMbps;
  int port;
  float latencyUs;
  int maxConnections;
  int maxGroupedReceives;
  int deviceType;
  int deviceVersion;
  VirtualDevice virtualDevice;
  size_t maxPointToPointBytes;
  size_t maxCollectiveBytes;
  char room[128];
};

// What differs from version to version.
template <int kVersion>
struct Types {
  using Properties = std::conditional_t<
      kVersion == 6, Properties6,
      std::conditional_t<kVersion == 7, Properties7,
                         std::conditional_t<kVersion == 8, Properties8, Properties9>>>;
  using RegisterSize = std::conditional_t<kVersion <= 7, int, size_t>;
  using MessageSize = std::conditional_t<kVersion <= 8, int, size_t>;

  using Init6 = ncclResult_t (*)(Logger);
  using Init10 = ncclResult_t (*)(Logger, Profiler);
  using Init11 = ncclResult_t (*)(void** context, uint64_t communicator, Config*, Logger, Profiler);
  using Init =
      std::conditional_t<kVersion <= 9, Init6, std::conditional_t<kVersion == 10, Init10, Init11>>;

  using Listen6 = ncclResult_t (*)(int device, void* handle, void** listener);
  using Listen11 = ncclResult_t (*)(void* context, int device, void* handle, void** listener);
  using Listen = std::conditional_t<kVersion <= 10, Listen6, Listen11>;

  // From 7 on the last argument is for connections that GPU kernels drive.
  using Connect6 = ncclResult_t (*)(int device, void* handle, void** sender);
  using Connect7 = ncclResult_t (*)(int device, void* handle, void** sender, void** onDevice);
  using Connect10 = ncclResult_t (*)(int device, Config*, void* handle, void** sender,
                                     void** onDevice);
  using Connect11 = ncclResult_t (*)(void* context, int device, void* handle, void** sender,
                                     void** onDevice);
  using Connect = std::conditional_t<
      kVersion == 6, Connect6,
      std::conditional_t<kVersion <= 9, Connect7,
                         std::conditional_t<kVersion == 10, Connect10, Connect11>>>;

  using Accept6 = ncclResult_t (*)(void* listener, void** receiver);
  using Accept7 = ncclResult_t (*)(void* listener, void** receiver, void** onDevice);
  using Accept = std::conditional_t<kVersion == 6, Accept6, Accept7>;

  // From 10 on with a parent for the plug-in's own profiler events.
  using Send6 = ncclResult_t (*)(void* sender, void* data, MessageSize size, int tag, void* memory,
                                 void** request);
  using Send10 = ncclResult_t (*)(void* sender, void* data, MessageSize size, int tag, void* memory,
                                  void* parent, void** request);
  using Send = std::conditional_t<kVersion <= 9, Send6, Send10>;

  using Receive6 = ncclResult_t (*)(void* receiver, int count, void** data, MessageSize* sizes,
                                    int* tags, void** memories, void** request);
  using Receive10 = ncclResult_t (*)(void* receiver, int count, void** data, MessageSize* sizes,
                                     int* tags, void** memories, void** parents, void** request);
  using Receive = std::conditional_t<kVersion <= 9, Receive6, Receive10>;
};

// What version 11 has behind closeListen().
struct Tail11 {
  void* getDeviceMemory;
  void* receiveConsumed;
  void* makeVirtualDevice;
  ncclResult_t (*finalize)(void* context);
  void* setAttributes;
};
struct NoTail {};

// Exported as ncclNetPlugin_v<kVersion>. Versions 7 to 10 have functions behind these, which are
// for kernels and merged adapters, and are not called here.
template <int kVersion>
struct Net {
  using T = Types<kVersion>;
  const char* name;
  typename T::Init init;
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, typename T::Properties* properties);
  typename T::Listen listen;
  typename T::Connect connect;
  typename T::Accept accept;
  ncclResult_t (*registerMemory)(void* connection, void* data, typename T::RegisterSize size,
                                 int kind, void** memory);
  // Of a GPU's memory; null where the plug-in has none.
  ncclResult_t (*registerDmaBuffer)(void* connection, void* data, size_t size, int kind,
                                    uint64_t offset, int descriptor, void** memory);
  ncclResult_t (*deregisterMemory)(void* connection, void* memory);
  typename T::Send send;
  typename T::Receive receive;
  // No request: there is nothing to wait for.
  ncclResult_t (*flush)(void* receiver, int count, void** data, int* sizes, void** memories,
                        void** request);
  ncclResult_t (*test)(void* request, int* isDone, int* sizes);
  ncclResult_t (*closeSend)(void* sender);
  ncclResult_t (*closeReceive)(void* receiver);
  ncclResult_t (*closeListen)(void* listener);
  [[no_unique_address]] std::conditional_t<kVersion == 11, Tail11, NoTail> tail;
};
static_assert(sizeof(Net<6>) == 17 * sizeof(void*));
static_assert(sizeof(Net<11>) == 22 * sizeof(void*));

}  // namespace tutti::net::plugin::abi
