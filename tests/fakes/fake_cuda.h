/* What a test tells the libcuda.so.1 of cuda/, by functions that it finds with dlsym. */
#pragma once

/* From its number-th call on, counted from 1 and from now, a call of the driver's returns the
 * result: once, or then every call that takes part, as with an error of a context that stays. */
typedef struct {
  const char* call; /* its name in the library; kept */
  int number;
  int result;
  int isSticky;
  int device; /* only of threads whose current context is this device's; -1: of all */
} FakeCudaFault;

/* int fakeCudaFail(const FakeCudaFault* fault): NULL mends. */
/* int fakeCudaHasFailed(void): since the last fakeCudaFail(). */
/* int fakeCudaAlive(void): streams, events, memory and mappings that are there. */
