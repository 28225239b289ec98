/* What the collective-network plug-in for tests and the process that reduces for it tell each
 * other, over TCP: a hello from each member, one byte back once all have come, then reductions,
 * gathers and scatters in order. */
#pragma once

#include <stdint.h>

enum { kCollnetMagic = 0x7e57c011 };

struct CollnetHello {
  uint32_t magic;
  uint32_t members;
  uint32_t member;
  uint32_t zero;
  unsigned char group[16]; /* the same for all members of one */
};

enum { kCollnetReduce, kCollnetGather, kCollnetScatter };

/* Before a member's part, and before the result, which goes to all members: the fold of their
 * parts, all parts one after the other, or each member's share of the fold. */
struct CollnetFrame {
  uint32_t bytes;
  uint8_t type; /* as nccl.h numbers them */
  uint8_t op;
  uint8_t work;
  uint8_t status; /* of a result; not 0: the members' parts do not fit, there is none */
};
