/* Measures one library, cell by cell, as run.py asks.
 *
 *   PROGRAM DIRECTORY RANKS [arguments of the peer]
 *
 * Commands, a line each, from DIRECTORY/command; answers, a line each, to DIRECTORY/result:
 *   (at the start)                            ready DESCRIPTION
 *   pids                                      pids PID ...
 *   measure COLLECTIVE BYTES ITERATIONS SECONDS
 *                                             time SLOWEST FASTEST ITERATIONS WRONG | absent
 *   quit (or end of file)
 * COLLECTIVE is a number of enum Collective. BYTES are those of the vector a rank reduces or
 * broadcasts, or of the whole gathered, scattered or exchanged vector. ITERATIONS 0: as many as
 * fill SECONDS. Times are seconds a call: of each rank the mean over the iterations, of the ranks
 * the slowest and the fastest. Between commands every rank sleeps, so that programs of several
 * libraries can be alive at once and take turns. */
#define _GNU_SOURCE
#include "bench/peers/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  kPeriod = 16381, /* floats after which values repeat; prime, so a shifted result is seen */
  kFewestIterations = 3,
  kMostIterations = 1000000,
  kWarmups = 50,
  kLineBytes = 512
};
static const double kTrialSeconds = 0.002;

struct Command {
  int isEnd;
  int collective;
  size_t bytes;
  long iterations;
  double seconds;
};

/* Begins as zeros. `arrived` and `generation` make a barrier: the last to arrive counts the
 * generation on, with release, and the others acquire it. `commands` is what idle ranks sleep on;
 * rank 0 counts it on, with release, after it has written `command`, which it may when all ranks
 * have met since the one before. */
struct Board {
  _Alignas(128) _Atomic uint32_t arrived;
  _Alignas(128) _Atomic uint32_t generation;
  _Alignas(128) _Atomic uint32_t commands;
  struct Command command;
  double values[kMaxRanks];
  int32_t pids[kMaxRanks];
  unsigned char blob[kBlobBytes];
};

struct Job {
  struct Place place;
  struct Board* board;
  float* inputs[kMaxRanks]; /* a period of each rank's values */
  float* sum;               /* a period of their sum */
  uint32_t commandsSeen;
};

/* The process is one rank of one job; meet() needs it from within peerOpen(). */
static struct Job job;

void fail(const char* what, const char* why) {
  fprintf(stderr, "rank %d: %s: %s\n", job.place.rank, what, why);
  exit(3);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int partnerOf(int rank, int rankCount) {
  const int half = rankCount / 2;
  if (rank >= 2 * half) return -1;
  return rank < half ? rank + half : rank - half;
}

/* ---- Meeting -------------------------------------------------------------------------------- */

void meet(void) {
  struct Board* board = job.board;
  const uint32_t generation = atomic_load_explicit(&board->generation, memory_order_acquire);
  const uint32_t before = atomic_fetch_add_explicit(&board->arrived, 1, memory_order_acq_rel);
  long spins = 0;
  if (before + 1 == (uint32_t)job.place.rankCount) {
    atomic_store_explicit(&board->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&board->generation, generation + 1, memory_order_release);
    return;
  }
  while (atomic_load_explicit(&board->generation, memory_order_acquire) == generation) {
    if (!job.place.hasOwnCores || ++spins > 20000) sched_yield();
  }
}

/* The largest and smallest of the ranks' values. */
static void extremes(double own, double* largest, double* smallest) {
  int rank;
  job.board->values[job.place.rank] = own;
  meet();
  *largest = *smallest = own;
  for (rank = 0; rank < job.place.rankCount; ++rank) {
    const double value = job.board->values[rank];
    if (value > *largest) *largest = value;
    if (value < *smallest) *smallest = value;
  }
  meet(); /* before anyone writes its next value */
}

static double total(double own) {
  double sum = 0;
  int rank;
  job.board->values[job.place.rank] = own;
  meet();
  for (rank = 0; rank < job.place.rankCount; ++rank) sum += job.board->values[rank];
  meet();
  return sum;
}

static void publish(const struct Command* command) {
  job.board->command = *command;
  atomic_fetch_add_explicit(&job.board->commands, 1, memory_order_release);
  syscall(SYS_futex, &job.board->commands, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void awaitCommand(void) {
  while (atomic_load_explicit(&job.board->commands, memory_order_acquire) == job.commandsSeen) {
    syscall(SYS_futex, &job.board->commands, FUTEX_WAIT, job.commandsSeen, NULL, NULL, 0);
  }
  ++job.commandsSeen;
}

/* ---- Values --------------------------------------------------------------------------------- */

/* Whole numbers of 11 bits, so that sums are exact in any order. */
static void makeInput(float* values, int rank) {
  uint64_t state = UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(rank + 1);
  int i;
  for (i = 0; i < kPeriod; ++i) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    values[i] = (float)((int)(state >> 53) - 1024);
  }
}

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes);
  if (memory == NULL) fail("malloc", "no memory");
  return memory;
}

static void makeValues(void) {
  int rank, i;
  job.sum = allocate(kPeriod * sizeof(float));
  for (i = 0; i < kPeriod; ++i) job.sum[i] = 0;
  for (rank = 0; rank < job.place.rankCount; ++rank) {
    job.inputs[rank] = allocate(kPeriod * sizeof(float));
    makeInput(job.inputs[rank], rank);
    for (i = 0; i < kPeriod; ++i) job.sum[i] += job.inputs[rank][i];
  }
}

static void fillWith(float* to, size_t count, const float* values) {
  while (count > 0) {
    const size_t run = count < kPeriod ? count : kPeriod;
    memcpy(to, values, run * sizeof(float));
    to += run;
    count -= run;
  }
}

/* How many of `count` floats differ from the values from `first` on. */
static size_t countWrong(const float* seen, size_t count, const float* values, size_t first) {
  size_t wrong = 0, phase = first % kPeriod, i;
  while (count > 0) {
    const size_t left = kPeriod - phase;
    const size_t run = count < left ? count : left;
    if (memcmp(seen, values + phase, run * sizeof(float)) != 0) {
      for (i = 0; i < run; ++i) wrong += seen[i] != values[phase + i];
    }
    seen += run;
    count -= run;
    phase = 0;
  }
  return wrong;
}

static size_t wrongOf(const struct Call* call, size_t whole) {
  const size_t rank = (size_t)job.place.rank;
  const int partner = partnerOf(job.place.rank, job.place.rankCount);
  size_t wrong = 0, piece;
  switch (call->collective) {
    case kAllReduce: return countWrong(call->recv, whole, job.sum, 0);
    case kReduceScatter: return countWrong(call->recv, call->count, job.sum, rank * call->count);
    case kBroadcast: return countWrong(call->recv, whole, job.inputs[0], 0);
    case kPingPong:
      if (partner < 0) return 0;
      return countWrong(call->recv, whole, job.inputs[partner < (int)rank ? partner : (int)rank],
                        0);
    case kAllGather:
    case kAllToAll:
      for (piece = 0; piece < (size_t)job.place.rankCount; ++piece) {
        const size_t first = call->collective == kAllToAll ? rank * call->count : 0;
        wrong +=
            countWrong(call->recv + piece * call->count, call->count, job.inputs[piece], first);
      }
      return wrong;
    case kCollectiveCount: break;
  }
  return 1;
}

/* ---- Measuring ------------------------------------------------------------------------------ */

static double timeCalls(const struct Call* call, long iterations) {
  double start;
  long i;
  meet();
  start = now();
  for (i = 0; i < iterations; ++i) peerCall(call);
  return (now() - start) / (double)iterations;
}

static long clampIterations(double wanted) {
  if (wanted < kFewestIterations) return kFewestIterations;
  return wanted > kMostIterations ? kMostIterations : (long)wanted;
}

/* As many as fill half of `seconds` at least: a trial that was disturbed says too few, so the count
 * is raised until they do. All ranks come to the same number, since they decide by the slowest. */
static long chooseIterations(const struct Call* call, double seconds) {
  enum { kTries = 5 };
  double slowest, fastest;
  long iterations = 1;
  int i;
  timeCalls(call, kFewestIterations); /* the first calls make connections */
  for (;; iterations *= 4) {
    extremes(timeCalls(call, iterations), &slowest, &fastest);
    if (slowest * (double)iterations >= kTrialSeconds || iterations * 4 > kMostIterations) break;
  }
  iterations = clampIterations(seconds / slowest);
  for (i = 0; i < kTries && iterations < kMostIterations; ++i) {
    extremes(timeCalls(call, iterations), &slowest, &fastest);
    if (slowest * (double)iterations >= seconds / 2) break;
    iterations = clampIterations(seconds / slowest);
  }
  return iterations;
}

/* The results of one call made after the timing, into memory that held no such values. */
static double check(const struct Call* call, size_t whole) {
  const int isRoot = job.place.rank == 0;
  memset(call->recv, 0xFF, whole * sizeof(float));
  if (call->collective == kBroadcast && isRoot) fillWith(call->recv, whole, job.inputs[0]);
  meet();
  peerCall(call);
  return total((double)wrongOf(call, whole));
}

static void answer(FILE* results, const char* text) {
  if (results == NULL) return;
  fputs(text, results);
  fflush(results);
}

static void measure(const struct Command* command, FILE* results) {
  const size_t whole = command->bytes / sizeof(float);
  struct Call call = {.collective = (enum Collective)command->collective};
  char line[kLineBytes];
  double slowest, fastest, wrong;
  long iterations = command->iterations, warmups;
  float* send;
  if (!peerHas(call.collective, command->bytes)) {
    meet(); /* all have read the command: the next may overwrite it */
    answer(results, "absent\n");
    return;
  }
  call.count = isInPieces(call.collective) ? whole / (size_t)job.place.rankCount : whole;
  send = peerAllocate(command->bytes);
  call.recv = peerAllocate(command->bytes);
  call.send = send;
  fillWith(send, whole, job.inputs[job.place.rank]);
  fillWith(call.recv, whole, job.inputs[0]);
  if (iterations == 0) iterations = chooseIterations(&call, command->seconds);
  warmups = iterations / 4 + 1;
  timeCalls(&call, warmups < kWarmups ? warmups : kWarmups);
  extremes(timeCalls(&call, iterations), &slowest, &fastest);
  wrong = check(&call, whole);
  peerFree(send);
  peerFree(call.recv);
  snprintf(line, sizeof line, "time %.9e %.9e %ld %.0f\n", slowest, fastest, iterations, wrong);
  answer(results, line);
}

/* ---- The job -------------------------------------------------------------------------------- */

static FILE* openFile(const char* name, const char* mode) {
  char path[kLineBytes];
  FILE* file;
  snprintf(path, sizeof path, "%s/%s", job.place.directory, name);
  file = fopen(path, mode);
  if (file == NULL) fail(path, strerror(errno));
  return file;
}

static struct Board* openBoard(void) {
  FILE* file = openFile("board", "r+");
  void* memory;
  if (ftruncate(fileno(file), sizeof(struct Board)) != 0) fail("board", strerror(errno));
  memory = mmap(NULL, sizeof(struct Board), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (memory == MAP_FAILED) fail("board", strerror(errno));
  fclose(file);
  return memory;
}

/* The launcher's word for this process's number: Open MPI's, MPICH's, or run.py's own. */
static int launchedRank(void) {
  static const char* const kNames[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"};
  size_t i;
  for (i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    const char* text = getenv(kNames[i]);
    if (text != NULL) return atoi(text);
  }
  fail("rank", "no OMPI_COMM_WORLD_RANK, PMI_RANK or RANK in the environment");
  return 0;
}

int cpusUsable(void) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) fail("affinity", strerror(errno));
  return CPU_COUNT(&usable);
}

void stayOn(int first, int count) {
  cpu_set_t usable, own;
  size_t cpu;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) fail("affinity", strerror(errno));
  CPU_ZERO(&own);
  for (cpu = 0; cpu < CPU_SETSIZE && count > 0; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || first-- > 0) continue;
    CPU_SET(cpu, &own);
    --count;
  }
  sched_setaffinity(0, sizeof own, &own);
}

/* A core a rank where there are enough, or its share of them; before the library starts threads,
 * which inherit it. */
static void pin(void) {
  const int share = cpusUsable() / job.place.rankCount;
  job.place.hasOwnCores = share > 0;
  if (share > 0) stayOn(job.place.rank * share, share);
}

static void answerPids(FILE* results) {
  int rank;
  fputs("pids", results);
  for (rank = 0; rank < job.place.rankCount; ++rank) fprintf(results, " %d", job.board->pids[rank]);
  fputs("\n", results);
  fflush(results);
}

/* Rank 0's part: returns 0 for what it has answered itself. */
static int readCommand(FILE* commands, FILE* results, struct Command* command) {
  char line[kLineBytes];
  memset(command, 0, sizeof *command);
  if (fgets(line, sizeof line, commands) == NULL || strncmp(line, "quit", 4) == 0) {
    command->isEnd = 1;
    return 1;
  }
  if (strncmp(line, "pids", 4) == 0) {
    answerPids(results);
    return 0;
  }
  if (sscanf(line, "measure %d %zu %ld %lf", &command->collective, &command->bytes,
             &command->iterations, &command->seconds) != 4 ||
      command->collective < 0 || command->collective >= kCollectiveCount) {
    fail("unknown command", line);
  }
  return 1;
}

static void serve(void) {
  FILE *commands = NULL, *results = NULL;
  struct Command command;
  if (job.place.rank == 0) {
    commands = openFile("command", "r");
    results = openFile("result", "w");
    fprintf(results, "ready %s\n", peerDescription());
    fflush(results);
  }
  for (;;) {
    if (commands != NULL) {
      if (!readCommand(commands, results, &command)) continue;
      publish(&command);
    }
    awaitCommand();
    command = job.board->command;
    if (command.isEnd) break;
    measure(&command, results);
  }
  if (commands != NULL) fclose(commands);
  if (results != NULL) fclose(results);
}

int main(int argc, char** argv) {
  if (argc < 3 || atoi(argv[2]) < 1 || atoi(argv[2]) > kMaxRanks) {
    fprintf(stderr, "usage: %s DIRECTORY RANKS [arguments]; run.py starts it\n", argv[0]);
    return 2;
  }
  job.place.directory = argv[1];
  job.place.rankCount = atoi(argv[2]);
  job.place.rank = launchedRank();
  if (job.place.rank < 0 || job.place.rank >= job.place.rankCount) fail("rank", "out of range");
  pin();
  job.board = openBoard();
  job.place.blob = job.board->blob;
  job.board->pids[job.place.rank] = (int32_t)getpid();
  makeValues();
  peerOpen(&job.place, argc - 3, argv + 3);
  meet();
  serve();
  meet();
  peerClose();
  return 0;
}
