// The checks that need no execution: shapes, ranges and link ends.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace tutti::schedule {

// Why the schedule is malformed; empty when every step can be executed and every link has a sender
// and a receiver that agree on the number of messages a piece.
std::string checkStructure(const Schedule& schedule);

}  // namespace tutti::schedule
