/* A library for tests that hangs whoever loads it. */
#include <unistd.h>

__attribute__((constructor)) static void beLoaded(void) {
  for (;;) pause();
}
