/* All-reduce across the ranks of an MPI job: the usual way to begin.
 *
 *   mpirun -n 4 ./mpi_allreduce
 *
 * MPI only carries the unique id to the ranks; the data goes through the library. On CPU ranks the
 * buffers are host memory and the stream is NULL. Built with EXAMPLE_ON_GPU, each process takes one
 * GPU of its host instead. Nothing here is special to one library: any nccl.h will do. */
#define _POSIX_C_SOURCE 200112L /* gethostname */
#include <mpi.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef EXAMPLE_ON_GPU
#include <cuda_runtime.h>
#endif

/* A job whose one rank has failed cannot go on: end all of it, so that nobody waits. */
#define CHECK(call, worked, reason)                                                 \
  do {                                                                              \
    if (!(worked)) {                                                                \
      fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #call, reason); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                 \
    }                                                                               \
  } while (0)
#define CHECK_MPI(call) CHECK(call, (call) == MPI_SUCCESS, "MPI error")
#define CHECK_NCCL(call)                                         \
  do {                                                           \
    ncclResult_t result_ = (call);                               \
    CHECK(call, result_ == ncclSuccess, ncclGetLastError(NULL)); \
  } while (0)
#define CHECK_CUDA(call)                                            \
  do {                                                              \
    cudaError_t error_ = (call);                                    \
    CHECK(call, error_ == cudaSuccess, cudaGetErrorString(error_)); \
  } while (0)

enum { kElementCount = 1 << 20 };

/* FNV-1a: equal for ranks of one host. */
static uint64_t hashHostName(void) {
  char name[1024] = {0};
  uint64_t hash = UINT64_C(14695981039346656037);
  const char* c;
  CHECK(gethostname, gethostname(name, sizeof(name) - 1) == 0, "no host name");
  for (c = name; *c != '\0'; ++c) hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return hash;
}

/* The how-manieth rank of its host this one is. */
static int findLocalRank(int rank, int rankCount) {
  uint64_t* hashes = malloc((size_t)rankCount * sizeof(*hashes));
  int other, localRank = 0;
  CHECK(malloc, hashes != NULL, "no memory");
  hashes[rank] = hashHostName();
  CHECK_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hashes, sizeof(*hashes), MPI_BYTE,
                          MPI_COMM_WORLD));
  for (other = 0; other < rank; ++other) localRank += hashes[other] == hashes[rank];
  free(hashes);
  return localRank;
}

/* values := the sum of all ranks' values. */
static void sumOverRanks(float* values, ncclComm_t comm) {
#ifdef EXAMPLE_ON_GPU
  const size_t bytes = kElementCount * sizeof(float);
  float *in, *out;
  cudaStream_t stream;
  CHECK_CUDA(cudaMalloc((void**)&in, bytes));
  CHECK_CUDA(cudaMalloc((void**)&out, bytes));
  CHECK_CUDA(cudaStreamCreate(&stream));
  CHECK_CUDA(cudaMemcpyAsync(in, values, bytes, cudaMemcpyHostToDevice, stream));
  CHECK_NCCL(ncclAllReduce(in, out, kElementCount, ncclFloat, ncclSum, comm, stream));
  CHECK_CUDA(cudaMemcpyAsync(values, out, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(in));
  CHECK_CUDA(cudaFree(out));
#else
  /* In place; with no stream the call returns when the result is there. */
  CHECK_NCCL(ncclAllReduce(values, values, kElementCount, ncclFloat, ncclSum, comm, NULL));
#endif
}

int main(int argc, char** argv) {
  int rank, rankCount, localRank, i, wrongCount = 0;
  ncclUniqueId id;
  ncclComm_t comm;
  float* values = malloc(kElementCount * sizeof(*values));

  CHECK_MPI(MPI_Init(&argc, &argv));
  CHECK(malloc, values != NULL, "no memory");
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &rankCount));

  localRank = findLocalRank(rank, rankCount);
#ifdef EXAMPLE_ON_GPU
  CHECK_CUDA(cudaSetDevice(localRank)); /* before the communicator, which takes the current one */
#endif

  if (rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  CHECK_MPI(MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD));
  CHECK_NCCL(ncclCommInitRank(&comm, rankCount, id, rank));

  /* Small whole numbers, so that the sum is exact in any order. */
  for (i = 0; i < kElementCount; ++i) values[i] = (float)(rank + i % 1000);
  sumOverRanks(values, comm);
  for (i = 0; i < kElementCount; ++i) {
    const int wanted = rankCount * (rankCount - 1) / 2 + rankCount * (i % 1000);
    wrongCount += values[i] != (float)wanted;
  }
  CHECK_NCCL(ncclCommDestroy(comm));

  printf("rank %d of %d (local rank %d): %d elements summed, %d wrong\n", rank, rankCount,
         localRank, (int)kElementCount, wrongCount);
  free(values);
  CHECK_MPI(MPI_Finalize());
  return wrongCount == 0 ? 0 : 1;
}
