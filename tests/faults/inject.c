/* Preloaded into a test's process: makes calls of the system fail, where a test asks for it.
 *
 * The test finds injectFault by dlsym; without this library it is not there, and the test skips.
 * Counters are process-wide: what a library's own threads call is counted too. */
#include "inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* glibc's own names: dlsym allocates, so malloc cannot be looked up with it. */
extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* old, size_t bytes);
extern void* __libc_memalign(size_t alignment, size_t bytes);

/* The ordinal of the call that fails, and what came so far. */
static _Atomic long wantedCall[kInjectKinds];
static _Atomic long calls[kInjectKinds];
static _Atomic int errorNumber[kInjectKinds];
static _Atomic bool isPersistent[kInjectKinds];
static _Atomic bool isArmed[kInjectKinds];
static _Atomic long clockSeconds;

__attribute__((visibility("default"))) void injectFault(enum InjectKind kind, long after, int error,
                                                        int persistent) {
  atomic_store(&isArmed[kind], false);
  atomic_store(&calls[kind], 0);
  atomic_store(&wantedCall[kind], after);
  atomic_store(&errorNumber[kind], error);
  atomic_store(&isPersistent[kind], persistent != 0);
  atomic_store(&isArmed[kind], after >= 0);
}

__attribute__((visibility("default"))) long injectedCalls(enum InjectKind kind) {
  return atomic_load(&calls[kind]);
}

__attribute__((visibility("default"))) void injectClock(long seconds) {
  atomic_store(&clockSeconds, seconds);
}

static bool isDue(enum InjectKind kind) {
  if (!atomic_load_explicit(&isArmed[kind], memory_order_relaxed)) return false;
  const long nth = atomic_fetch_add(&calls[kind], 1);
  const long wanted = atomic_load(&wantedCall[kind]);
  if (nth < wanted || (nth > wanted && !atomic_load(&isPersistent[kind]))) return false;
  errno = atomic_load(&errorNumber[kind]);
  return true;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define EXPORT __attribute__((visibility("default")))

/* ---- Memory */

EXPORT void* malloc(size_t bytes) { return isDue(kInjectMalloc) ? NULL : __libc_malloc(bytes); }
EXPORT void* calloc(size_t count, size_t bytes) {
  return isDue(kInjectMalloc) ? NULL : __libc_calloc(count, bytes);
}
EXPORT void* realloc(void* old, size_t bytes) {
  return isDue(kInjectMalloc) ? NULL : __libc_realloc(old, bytes);
}
EXPORT void* memalign(size_t alignment, size_t bytes) {
  return isDue(kInjectMalloc) ? NULL : __libc_memalign(alignment, bytes);
}
EXPORT void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
EXPORT int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (isDue(kInjectMalloc)) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == NULL ? ENOMEM : 0;
}

EXPORT void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static __typeof__(&mmap) real;
  if (real == NULL) real = REAL(mmap);
  return isDue(kInjectMmap) ? MAP_FAILED : real(at, bytes, protection, flags, fd, offset);
}

EXPORT int memfd_create(const char* name, unsigned flags) {
  return isDue(kInjectMemfd) ? -1 : REAL(memfd_create)(name, flags);
}

EXPORT int ftruncate(int fd, off_t bytes) {
  return isDue(kInjectTruncate) ? -1 : REAL(ftruncate)(fd, bytes);
}

/* ---- Threads */

EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* argument) {
  if (isDue(kInjectThread)) return errno;
  return REAL(pthread_create)(thread, attributes, body, argument);
}

/* ---- The network. Its fault is not an error number but what may happen to a process there. */

static void dieOrStop(void) {
  if (isDue(kInjectNetworkDeath)) raise(SIGKILL);
  if (isDue(kInjectNetworkStop)) raise(SIGSTOP);
}

static void networkStep(int fd) {
  dieOrStop();
  if (isDue(kInjectReset)) {
    /* Dissolving the association of a TCP socket that lingers for no time sends a reset. */
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    REAL(connect)(fd, &nobody, sizeof nobody);
  }
}

EXPORT ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  networkStep(fd);
  return REAL(send)(fd, data, bytes, flags);
}
EXPORT ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  const ssize_t got = REAL(recv)(fd, data, bytes, flags);
  if (got > 0) networkStep(fd);
  return got;
}
EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  networkStep(fd);
  return REAL(sendmsg)(fd, message, flags);
}
EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  const ssize_t got = REAL(recvmsg)(fd, message, flags);
  if (got > 0) networkStep(fd);
  return got;
}
EXPORT int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes) {
  dieOrStop();
  return REAL(connect)(fd, address, bytes);
}

/* ---- Another process's memory */

EXPORT ssize_t process_vm_writev(pid_t process, const struct iovec* from, unsigned long fromCount,
                                 const struct iovec* to, unsigned long toCount,
                                 unsigned long flags) {
  if (isDue(kInjectLateWrite)) {
    const struct timespec delay = {.tv_sec = errno / 1000, .tv_nsec = errno % 1000 * 1000000L};
    nanosleep(&delay, NULL);
  }
  return REAL(process_vm_writev)(process, from, fromCount, to, toCount, flags);
}

/* ---- Wall-clock time */

EXPORT int clock_gettime(clockid_t clock, struct timespec* now) {
  static __typeof__(&clock_gettime) real;
  if (real == NULL) real = REAL(clock_gettime);
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += atomic_load(&clockSeconds);
  return result;
}
EXPORT int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  const int result = REAL(gettimeofday)(now, zone);
  if (result == 0) now->tv_sec += atomic_load(&clockSeconds);
  return result;
}
EXPORT time_t time(time_t* now) {
  struct timespec spec;
  clock_gettime(CLOCK_REALTIME, &spec);
  if (now != NULL) *now = spec.tv_sec;
  return spec.tv_sec;
}
