/*
 * The standard collective-communication C interface, level 2.28.9, as tutti's libnccl.so.2 offers
 * it.
 *
 * Names, numbers, parameter types and layouts are those that programs built for this level expect,
 * so a program built against either header runs on either library. C99 and C++.
 *
 * Terms that hold for every call below
 *   Rank       one member of a communicator: a GPU, or (no CUDA device, or TUTTI_DEVICE=host) a CPU
 *              rank. The calls, their rules and their errors are the same for both.
 *   Buffer     a GPU rank's buffers are device memory of its GPU; a CPU rank's are host memory of
 *              its process. A count is in elements of the data type, never in bytes.
 *   Stream     a GPU rank's operations run in order on the given stream and the call returns once
 *              they are enqueued. A CPU rank passes NULL (the call, or the end of the outermost
 *              group, returns when its result is there) or a host stream of tutti/host.h (it
 *              returns once the operation is enqueued). Until the stream has passed the operation,
 *              inputs must stay unchanged and outputs must not be touched.
 *   Collective every rank of the communicator calls the same operation, with the same count, type,
 *              operation and root, in the same order.
 *   In place   allowed where a call says so; any other overlap of input and output is an error of
 *              the caller.
 *   Threads    calls on different communicators may be made from any threads. Calls on one
 *              communicator are made by one thread at a time, except ncclCommAbort and
 *              ncclCommGetAsyncError, which may be called beside any other. A thread that is
 *              cancelled (pthread_cancel, of the deferred type) while it is in a call ends after
 *              the call, which goes on as if nothing had happened, however long it waits for its
 *              peers; ncclCommAbort from another thread ends it. The communicator is then any
 *              other thread's to use. Cancelled inside a group, a thread takes the group's calls
 *              with it. Asynchronous cancellation is not supported.
 *   Children   descriptors of the library are close-on-exec. A child that was forked after the
 *              first call gets ncclInvalidUsage from any; its end does its parent no harm.
 *   Errors     ncclInvalidArgument: this call's arguments are wrong, nothing was done.
 *              ncclInvalidUsage: the call does not fit the communicator's or group's state, differs
 *              from the other ranks' calls, or is not supported. Every other error belongs to the
 *              communicator, which can then only be aborted (or shrunk with NCCL_SHRINK_ABORT).
 *              ncclGetLastError says which rank, which value and which setting.
 *   Support    this release answers ncclInvalidUsage, and says so in the text, to the device API's
 *              calls that make what kernels use. Registration is a hint: it is checked and kept,
 *              and changes no result. splitShare and shrinkShare are accepted; nothing is shared.
 *   Outputs    are written only on ncclSuccess (a new communicator also on ncclInProgress).
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CUDA is optional: where its headers can be found they are included, as programs written for GPUs
 * rely on; elsewhere, or with TUTTI_WITHOUT_CUDA_HEADERS defined, the stream type alone is
 * declared, in the same words as CUDA's own.
 */
#if !defined(TUTTI_WITHOUT_CUDA_HEADERS) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define TUTTI_NCCL_H_HAS_CUDA 1
#endif
#endif
#ifdef TUTTI_NCCL_H_HAS_CUDA
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#else
typedef struct CUstream_st* cudaStream_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
/* The version code of release x.y.z; releases up to 2.8 counted in another way. */
#define NCCL_VERSION(x, y, z) \
  (((x) <= 2 && (y) <= 8) ? ((x)*1000 + (y)*100 + (z)) : ((x)*10000 + (y)*100 + (z)))

/* NOLINTBEGIN(modernize-use-using): C, too */

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Types -------------------------------------------------------------------------------- */

/* One rank's membership of a communicator. An opaque handle: it is checked, never followed. */
typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

/* A buffer that all ranks of a communicator have registered together. */
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* Where the ranks of a new communicator meet, and the secret by which they know each other: carry
 * it to them by a channel that others cannot read. Plain bytes, passed by value. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1, /* a CUDA call failed */
  ncclSystemError = 2,        /* a system call, the network or a time limit failed */
  ncclInternalError = 3,      /* a fault of the library itself */
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6, /* a peer has died, or has closed its links */
  ncclInProgress = 7,  /* no error: not finished yet, ask ncclCommGetAsyncError again */
  ncclNumResults = 8
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Names the built-in operations' count before ncclRedOp_t itself is declared. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

/* Values from ncclNumOps up are operations made at run time. The last enumerator fixes the type's
 * range, so that such values fit on every compiler. */
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4, /* the sum divided by the number of ranks */
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* Where a scalar argument lies, and when it is read. */
typedef enum {
  ncclScalarDevice = 0,       /* in device memory, read when the operation runs */
  ncclScalarHostImmediate = 1 /* in host memory, read before the call returns */
} ncclScalarResidence_t;

/*
 * Wishes for a new communicator. Begin with NCCL_CONFIG_INITIALIZER, then set what you want.
 *
 * The struct grows at its end only. `size` and `version` are those of the header the program was
 * built with: the library reads no byte beyond `size`, and takes every field that `version` does
 * not know yet as unset. A field left unset means the default, and an environment variable that
 * says the same thing wins over a field. All ranks should give equal values.
 */
typedef struct ncclConfig_v22800 {
  size_t size;          /* sizeof(ncclConfig_t); set by the initialiser */
  unsigned magic;       /* set by the initialiser */
  unsigned version;     /* NCCL_VERSION_CODE of the caller; set by the initialiser */
  int blocking;         /* 1 (default): calls return when done. 0: they may return ncclInProgress */
  int cgaClusterSize;   /* thread blocks a cluster, 0..8; GPU ranks */
  int minCTAs;          /* fewest channels, at least 1 */
  int maxCTAs;          /* most channels, at least minCTAs */
  const char* netName;  /* the network to use, by name; NULL: choose */
  int splitShare;       /* 1: a communicator split from this one shares its resources */
  int trafficClass;     /* service class of the network's packets */
  const char* commName; /* shown in logs and errors; copied; NULL: none */
  int collnetEnable;    /* 1: reduce inside the network where it can */
  int CTAPolicy;        /* NCCL_CTA_POLICY_*, may be or-ed */
  int shrinkShare;      /* as splitShare, for ncclCommShrink */
  int nvlsCTAs;         /* channels of NVLink multicast algorithms */
  int nChannelsPerNetPeer; /* point-to-point channels to a peer behind a network */
  int nvlinkCentricSched;  /* 1: order point-to-point rounds for NVLink first */
} ncclConfig_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#define NCCL_CONFIG_INITIALIZER                          \
  {                                                      \
    sizeof(ncclConfig_t),      /* size */                \
        0xcafebeef,            /* magic */               \
        NCCL_VERSION_CODE,     /* version */             \
        NCCL_CONFIG_UNDEF_INT, /* blocking */            \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */      \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */             \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */             \
        NCCL_CONFIG_UNDEF_PTR, /* netName */             \
        NCCL_CONFIG_UNDEF_INT, /* splitShare */          \
        NCCL_CONFIG_UNDEF_INT, /* trafficClass */        \
        NCCL_CONFIG_UNDEF_PTR, /* commName */            \
        NCCL_CONFIG_UNDEF_INT, /* collnetEnable */       \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */           \
        NCCL_CONFIG_UNDEF_INT, /* shrinkShare */         \
        NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */            \
        NCCL_CONFIG_UNDEF_INT, /* nChannelsPerNetPeer */ \
        NCCL_CONFIG_UNDEF_INT  /* nvlinkCentricSched */  \
  }

/* What a simulated group tells. Grows by the same rule as ncclConfig_t. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime; /* in microseconds; negative: not known */
} ncclSimInfo_t;

#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* ncclCommSplit: the colour of a rank that joins no new communicator. */
#define NCCL_SPLIT_NOCOLOR -1
/* ncclCommShrink */
#define NCCL_SHRINK_DEFAULT 0x00 /* the parent is idle and stays usable */
#define NCCL_SHRINK_ABORT 0x01   /* end what the parent is doing first; for use after a fault */
/* ncclCommRevoke */
#define NCCL_REVOKE_DEFAULT 0x00
/* ncclCommWindowRegister */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01 /* every rank's offsets into the window will be equal */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* ---- The library -------------------------------------------------------------------------- */

/* The version of the interface, as NCCL_VERSION_CODE counts it. */
ncclResult_t ncclGetVersion(int* version);

/* A fixed sentence for a result code; never NULL, valid for ever. */
const char* ncclGetErrorString(ncclResult_t result);

/* The text of the latest error, "" when there was none. The pointer stays valid; the next error
 * changes the text. `comm` may be NULL. */
const char* ncclGetLastError(ncclComm_t comm);

/* Does nothing useful any more: settings are read once. The second name is exported because
 * programs of the 2.28 level may carry it; it has no profiling twin. */
#if defined(__GNUC__)
__attribute__((deprecated))
#endif
void ncclResetDebugInit(void);
void ncclResetDebugInitInternal(void);

/* Memory fit for every call here, and for registration; `size` in bytes, above 0. For a GPU rank it
 * lies on the current device, for a CPU rank it is host memory of its process. Free it with
 * ncclMemFree only; ncclMemFree(NULL) is no error. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t ncclMemFree(void* ptr);

/* ---- Making communicators ----------------------------------------------------------------- */

/* Makes an id and starts listening for the ranks that will use it, in this process, which has to
 * live until all of them have joined. One rank calls it and gives the id to the others. An id makes
 * one communicator. With NCCL_COMM_ID=host:port the meeting place is that address. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);

/* Joins a new communicator of `nranks` ranks as rank 0 <= rank < nranks. Collective: returns when
 * all ranks have joined, or with an error after TUTTI_TIMEOUT_MS. A GPU rank joins with its
 * thread's current device. One thread that makes several ranks does so inside a group. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
/* The same with wishes; `config` may be NULL. With blocking = 0 it returns ncclInProgress, and
 * `comm` can be asked by ncclCommGetAsyncError and aborted, until it is ready; other calls return
 * ncclInvalidArgument. From then on no call waits for a peer. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config);
/* The same with 1 <= nId <= nranks meeting places, which share the work of very many ranks. All
 * ranks pass the same ids in the same order. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config);
/* Makes all `ndev` ranks of a communicator in this process: comm[i] is rank i on device devlist[i],
 * or on device i when `devlist` is NULL. CPU ranks may be as many as wanted. On failure none is
 * left. */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* Makes a communicator for each colour among the ranks of `comm`, ordered by key, then by rank in
 * `comm`. Collective over `comm`, also for ranks with colour NCCL_SPLIT_NOCOLOR, whose `newcomm`
 * becomes NULL. `config` NULL: as the parent. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config);

/* Makes a communicator of the ranks of `comm` without the listed ones; the order stays.
 * Called by the remaining ranks only, with the same list; the others may be dead. Where the lists
 * differ, or one of these ranks does not come, all fail within TUTTI_TIMEOUT_MS.
 * With NCCL_SHRINK_ABORT `comm` is revoked first. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);

/* ---- Ending communicators ----------------------------------------------------------------- */

/* Waits until all operations given to `comm` are done, and says goodbye to the peers. Collective.
 * Afterwards only ncclCommDestroy, ncclCommAbort and the queries are allowed. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/* Finalizes if that was not done, and frees. The handle is dead from its beginning, so that no
 * further call finds it; for calls of other threads that are under way it waits. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* Ends whatever `comm` is doing, initialisation too, and frees it. Local: needs no peer, returns
 * within a second. Calls of other threads that hang in `comm` return with an error. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/* Ends whatever `comm` is doing but keeps it, to be split, shrunk, destroyed or aborted, nothing
 * else. Local; peers that wait for this rank learn of it. `revokeFlags`: NCCL_REVOKE_DEFAULT. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* ---- Asking communicators ----------------------------------------------------------------- */

/* The state of `comm`: ncclSuccess, ncclInProgress, or the error that broke it. Never waits. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);     /* number of ranks */
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device); /* this rank's device number */
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);   /* this rank */

/* ---- Registration ------------------------------------------------------------------------- */

/* Tells that `size` bytes at `buff` will be used often by this rank. Local, an optimisation only:
 * results never depend on it. `handle` is for ncclCommDeregister, before the buffer is freed. On
 * CPU ranks it changes nothing: peers read memory of ncclMemAlloc in place also without, and other
 * memory by process_vm_readv where the kernel lets them and it is faster, or else from slots. */
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);

/* Registers a buffer of every rank together; `buff` comes from ncclMemAlloc and is aligned to
 * NCCL_WIN_REQUIRED_ALIGNMENT. Collective, also the deregistration. `win` becomes NULL, which
 * is no error, where peers cannot reach the buffer in place (other memory, more than 8 GPU ranks or
 * several hosts, NCCL_P2P_DISABLE). `winFlags`: NCCL_WIN_*. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* ---- Reductions made at run time ---------------------------------------------------------- */

/* Makes `op`: each rank's input times that rank's scalar, then summed. `scalar` points to one
 * element of `datatype`, the only type the operation may then be used with, and only on `comm`.
 * ncclRedOpDestroy may be called as soon as the last call that uses `op` has returned. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collective operations ---------------------------------------------------------------- */
/* n is the number of ranks; X_r is the buffer X of rank r. A count of 0 is allowed and moves
 * nothing. */

/* recvbuff_r[i] = op over all ranks s of sendbuff_s[i], 0 <= i < count, on every rank r.
 * In place: sendbuff == recvbuff. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);

/* As all-reduce, but only rank `root` gets the result; elsewhere `recvbuff` is not used. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);

/* Each rank's vector of n * recvcount elements is reduced, and rank r gets the r-th piece of
 * recvcount elements. In place: recvbuff == sendbuff + r * recvcount. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);

/* recvbuff, n * sendcount elements, is the ranks' inputs one after the other.
 * In place: sendbuff == recvbuff + r * sendcount. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);

/* Every recvbuff becomes `count` elements of rank root's sendbuff, which only the root's call uses.
 * In place: sendbuff == recvbuff. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
/* The older form: always in place. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);

/* Piece s of recvbuff_r is piece r of sendbuff_s; both have n pieces of `count` elements.
 * Not in place. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);

/* Rank root's recvbuff, n * count elements, is the ranks' inputs one after the other; elsewhere it
 * is not used. In place on the root: sendbuff == recvbuff + root * count. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream);

/* recvbuff_r is piece r, `count` elements, of rank root's sendbuff, which only the root's call
 * uses. In place on the root: recvbuff == sendbuff + root * count. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);

/* ---- Point to point ----------------------------------------------------------------------- */
/* A send meets the peer's receive of equal count and type, in the order both were called. Outside a
 * group either may wait for the other; inside one, any set that pairs up is free of deadlock.
 * A rank may send to itself inside a group. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);

/* ---- Groups ------------------------------------------------------------------------------- */
/* What a thread calls between start and end, operations, initialisations, splits and ends of
 * communicators, is done as one at the end of the outermost group: the way to drive several ranks
 * from one thread. Groups belong to their thread and nest. ncclGroupEnd returns the first error
 * of what was called inside; then nothing of the group was started. Finalize and destroy are done
 * at the end too, after the rest, and destroy even after an error; abort at once. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
/* Ends the group without running its operations, and estimates how long they would take. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* ---- Profiling twins ---------------------------------------------------------------------- */
/* Each ncclX is a weak name for pncclX: a tool may define ncclX itself, look, and call pncclX. */
ncclResult_t pncclGetVersion(int* version);
const char* pncclGetErrorString(ncclResult_t result);
const char* pncclGetLastError(ncclComm_t comm);
void pncclResetDebugInit(void);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemFree(void* ptr);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* commIds, ncclConfig_t* config);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                            ncclConfig_t* config);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                             ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommCount(ncclComm_t comm, int* count);
ncclResult_t pncclCommCuDevice(ncclComm_t comm, int* device);
ncclResult_t pncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t pncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int winFlags);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm,
                            cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclGroupEnd(void);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using) */

#endif /* NCCL_H_ */
