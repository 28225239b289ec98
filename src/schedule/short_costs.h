// What algorithms cost for vectors so short that chunks start on cache lines (layout.h) leaves the
// last of them empty: those are never sent. For catalog.cc's table. Pure, any thread.
#pragma once

#include "schedule/catalog.h"

namespace tutti::schedule {

// REQUIRES for all: at least two ranks, at least one chunk, fewer than the algorithm has.
Cost ringOfFirst(const ShortVector& vector);
Cost twoShotOfFirst(const ShortVector& vector);
Cost hierarchicalOfFirst(const ShortVector& vector);
Cost patOfFirst(const ShortVector& vector);
Cost treeOfFirst(const ShortVector& vector);
Cost twoShotBroadcastOfFirst(const ShortVector& vector);
Cost twoShotReduceOfFirst(const ShortVector& vector);
Cost treeBroadcastOfFirst(const ShortVector& vector);
Cost treeReduceOfFirst(const ShortVector& vector);

}  // namespace tutti::schedule
