// From what a machine shows to what matters about it: discovery and hwloc see every bridge and
// display adapter.
#pragma once

#include "topology/description.h"

namespace tutti::topology {

// Without the devices that look like GPUs but that nobody names (a server's display adapter,
// another maker's card); a line in `assumptions` says which.
void dropUnnamedGpus(Description& description);

// Without any, for those who do not look for GPUs.
void dropGpus(Description& description);

// A PCI switch is several devices (a port upwards, one downwards for each thing below it), and a
// root port is one more. Those with one way down are joined with what is below them, whose link
// then is the slowest on the way: what stays are the places where ways part.
void joinBridges(Description& description);

}  // namespace tutti::topology
