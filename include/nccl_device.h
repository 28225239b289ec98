/*
 * The host half of the device interface, level 2.28.9: what a program calls on the CPU to prepare
 * kernels that communicate by themselves. See nccl.h for the terms.
 *
 * The half that such kernels include, and the layout of ncclDevComm_t with it, is not offered: that
 * layout is compiled into the kernels and belongs to one implementation. ncclDevCommCreate and the
 * calls that make requirements for it therefore answer ncclInvalidUsage, with a text that says so.
 * The team calls are arithmetic and work. All signatures are those of the 2.28.9 level, so that
 * programs which only refer to these names load and run.
 */
#ifndef TUTTI_NCCL_DEVICE_H_
#define TUTTI_NCCL_DEVICE_H_

#ifndef __cplusplus
#include <stdbool.h>
#endif

#include "nccl.h"

/* NOLINTBEGIN(modernize-use-using): C, too */

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Types -------------------------------------------------------------------------------- */

typedef struct ncclDevComm ncclDevComm_t; /* opaque here, see above */

/* The ranks first, first + stride, ... of a communicator, such that this rank is member `rank`. */
typedef struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
} ncclTeam_t;

typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;

typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;

typedef struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;

typedef struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t bufHandle;
} ncclGinBarrierHandle_t;

typedef struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
} ncclLLA2AHandle_t;

/* A piece of symmetric memory, and signals, that a device communicator shall have; a list. Sizes in
 * bytes. The out pointers may be NULL. */
typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize;
  size_t bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
} ncclDevResourceRequirements_t;

/* A team that shall be able to use multicast memory; a list. */
typedef struct ncclTeamRequirements {
  struct ncclTeamRequirements* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle;
} ncclTeamRequirements_t;

typedef struct ncclDevCommRequirements {
  ncclDevResourceRequirements_t* resourceRequirementsList;
  ncclTeamRequirements_t* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount;
  int lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
} ncclDevCommRequirements_t;

/* ---- Device communicators ----------------------------------------------------------------- */

/* Collective. ncclInvalidUsage, see above. */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* requirements,
                               ncclDevComm_t* outDevComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);

/* ---- Teams -------------------------------------------------------------------------------- */
/* Local arithmetic on a communicator that is ready. On a bad communicator the team is empty (all
 * fields 0), the rank -1, and ncclGetLastError says why. */

ncclTeam_t ncclTeamWorld(ncclComm_t comm); /* all ranks */
ncclTeam_t ncclTeamLsa(ncclComm_t comm);   /* those whose memory this rank can load and store */
ncclTeam_t ncclTeamRail(ncclComm_t comm);  /* those of equal index in their own Lsa team */
/* What member `rank` of `team` is called in the communicator, or in the Lsa team. */
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

/* ---- Requirements ------------------------------------------------------------------------- */

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                             ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
/* How many slots an all-to-all of `maxElts` elements of at most `maxEltSize` bytes needs. */
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq);

/* ---- Profiling twins ---------------------------------------------------------------------- */
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* requirements,
                                ncclDevComm_t* outDevComm);
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);
ncclTeam_t pncclTeamWorld(ncclComm_t comm);
ncclTeam_t pncclTeamLsa(ncclComm_t comm);
ncclTeam_t pncclTeamRail(ncclComm_t comm);
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                              ncclLsaBarrierHandle_t* outHandle,
                                              ncclDevResourceRequirements_t* outReq);
ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                              ncclGinBarrierHandle_t* outHandle,
                                              ncclDevResourceRequirements_t* outReq);
int pncclLLA2ACalcSlots(int maxElts, int maxEltSize);
ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                         ncclDevResourceRequirements_t* outReq);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using) */

#endif /* TUTTI_NCCL_DEVICE_H_ */
