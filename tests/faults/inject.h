/* What inject.c makes fail, for C and C++. Look the functions up by dlsym(RTLD_DEFAULT, ...). */
#pragma once

enum InjectKind {
  kInjectMalloc, /* malloc and its family give NULL */
  kInjectMmap,
  kInjectMemfd,
  kInjectTruncate,
  kInjectThread,       /* pthread_create */
  kInjectNetworkDeath, /* the process is killed at a step on a socket */
  kInjectNetworkStop,  /* it stops there */
  kInjectReset,        /* the peer of that socket gets a TCP reset */
  kInjectLateWrite,    /* process_vm_writev comes so many ms late as `error` says */
  kInjectKinds
};

/* void injectFault(enum InjectKind, long after, int error, int persistent): the call number `after`
 * from now (0: the next) fails with `error`, and with `persistent` all later ones too; a negative
 * `after` ends it. */
typedef void InjectFault(enum InjectKind kind, long after, int error, int persistent);
/* long injectedCalls(enum InjectKind): how many calls there were since. */
typedef long InjectedCalls(enum InjectKind kind);
/* void injectClock(long seconds): CLOCK_REALTIME jumps by so much. */
typedef void InjectClock(long seconds);
