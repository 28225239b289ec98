// How many messages of a call wait for each other. Pure.
#pragma once

#include <cstdint>

#include "sim/traffic.h"

namespace tutti::sim {

// The longest chain of messages: those inside nodes, those between.
struct Hops {
  int64_t inside = 0;
  int64_t between = 0;
  int64_t all() const { return inside + between; }
};
Hops hopsOf(const Traffic& traffic);

}  // namespace tutti::sim
