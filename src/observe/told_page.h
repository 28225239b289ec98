// What ranks of other hosts have told those of this one (launch/far_pages.h), kept on their pages
// of this host's board for who looks at it from outside. The ranks themselves go by what each has
// asked for.
#pragma once

#include <cstdint>

#include "observe/board.h"
#include "observe/diagnosis.h"

namespace tutti::observe {

// Newest first, as it was at `toldAt`, by this host's monotonic clock. Any process that may write
// to the board; one that finds another at it leaves it to that one, as it does what is older.
void keepTold(Board& board, const RankView& rank, int64_t toldAt);

// Puts that into the view of a rank of another host. Nothing where it is older than a second by
// `now`, since what a rank waits for is soon over.
void addTold(const Board& board, int64_t now, RankView& rank);

}  // namespace tutti::observe
