// The binary interface of collective-network plug-ins, versions 6 to 11: the struct of functions
// that a plug-in exports as ncclCollNetPlugin_v<N>. Facts of the interface, as net_abi.h.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "net/plugin/net_abi.h"

namespace tutti::net::plugin::abi {

// Behind closeListen(). In versions 9 and 10 makeVirtualDevice is there, too; it is not called.
struct CollnetTail11 {
  void* makeVirtualDevice;
  ncclResult_t (*finalize)(void* context);
};

// Of a list of places that hold a vector together.
template <typename Size>
struct CollnetPart {
  void* memory;
  void* data;
  Size size;
};

// From 8 on. A window is a range of the vector of all members' bytes, one after the other; parts
// hold as many bytes as it, the other pointer what of it is the member's own.
template <int kVersion>
struct CollnetMoves {
  using Part = CollnetPart<std::conditional_t<kVersion <= 8, uint32_t, size_t>>;
  ncclResult_t (*allGather)(void* group, void* input, int partCount, Part* parts,
                            size_t bytesPerMember, size_t windowOffset, size_t windowBytes,
                            void* inputMemory, void** request);
  ncclResult_t (*reduceScatter)(void* group, int partCount, Part* parts, void* output,
                                size_t bytesPerMember, size_t windowOffset, size_t windowBytes,
                                ncclDataType_t type, ncclRedOp_t op, void* outputMemory,
                                void** request);
};
struct NoMoves {};

template <int kVersion>
struct CollnetTypes {
  using Count = std::conditional_t<kVersion <= 8, int, size_t>;
  using Init6 = ncclResult_t (*)(Logger);
  using Init11 = ncclResult_t (*)(void** context, uint64_t communicator, Logger);
  using Init = std::conditional_t<kVersion <= 10, Init6, Init11>;
};

template <int kVersion>
struct Collnet {
  using T = CollnetTypes<kVersion>;
  const char* name;
  typename T::Init init;
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, typename Types<kVersion>::Properties* properties);
  typename Types<kVersion>::Listen listen;
  ncclResult_t (*connect)(void** handles, int memberCount, int member, void* listener,
                          void** group);
  ncclResult_t (*reduceSupport)(ncclDataType_t type, ncclRedOp_t op, int* isSupported);
  ncclResult_t (*registerMemory)(void* group, void* data,
                                 typename Types<kVersion>::RegisterSize size, int kind,
                                 void** memory);
  void* registerDmaBuf;
  ncclResult_t (*deregisterMemory)(void* group, void* memory);
  ncclResult_t (*allReduce)(void* group, void* input, void* output, typename T::Count count,
                            ncclDataType_t type, ncclRedOp_t op, void* inputMemory,
                            void* outputMemory, void** request);
  [[no_unique_address]] std::conditional_t<kVersion >= 8, CollnetMoves<kVersion>, NoMoves> moves;
  void* flush;
  ncclResult_t (*test)(void* request, int* isDone, int* size);
  ncclResult_t (*closeGroup)(void* group);
  ncclResult_t (*closeListen)(void* listener);
  [[no_unique_address]] std::conditional_t<kVersion == 11, CollnetTail11, NoTail> tail;
};
static_assert(sizeof(Collnet<6>) == 15 * sizeof(void*));
static_assert(sizeof(Collnet<8>) == 17 * sizeof(void*));
static_assert(sizeof(Collnet<11>) == 19 * sizeof(void*));

}  // namespace tutti::net::plugin::abi
