// Parts of checkAll() that are no collective by itself: each prints what failed and returns how
// many.
#pragma once

#include "team.h"

namespace tutti::bench {

// Sends and receives of several patterns.
int checkTransfers(Team& team, bool isShort);
// A captured graph, replayed between calls of other sizes.
int checkGraph(Team& team);
// A rank that does not come, calls something else or is aborted: the others end.
int checkMisdeeds(Team& team);

}  // namespace tutti::bench
