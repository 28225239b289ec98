// Both ends of a message: the n-th that one rank sends another is the n-th that the other receives
// from it. Pure; takes sound schedules (structure.h).
#pragma once

#include <cstddef>
#include <optional>

#include "base/ids.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

bool sendsTo(const Program& program, const Step& step, Rank peer);
bool receivesFrom(const Program& program, const Step& step, Rank peer);

// The receiver's step that takes what the sender's step sends it; none when there is no such step.
std::optional<size_t> receivingStep(const Schedule& schedule, Rank sender, size_t step,
                                    Rank receiver);

// The sender's step that sends what the receiver's step takes from it.
std::optional<size_t> sendingStep(const Schedule& schedule, Rank receiver, size_t step,
                                  Rank sender);

}  // namespace tutti::schedule
