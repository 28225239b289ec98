// Inside the planner: which algorithm a call takes, by prices, and what that is asked about.
#pragma once

#include <functional>

#include "plan/crossings.h"
#include "plan/plan.h"
#include "schedule/catalog.h"

namespace tutti::plan {

// How the call's programs are built, while there is the agreement; and on which chunks of the
// vector there is anything.
// Of the call, as that rank makes it. Unlike the next it allocates nothing, so calls may ask for
// it.
schedule::Peers peersOf(const CallShape& shape, Rank rank);
schedule::ScheduleOptions optionsFor(const CallShape& shape, const Agreement& agreement);
int32_t filledChunks(const schedule::Algorithm& algorithm, const CallShape& shape,
                     const Agreement& agreement);

// What goes between hosts; a planner remembers it.
using CrossingsOf = std::function<Crossings(const schedule::Algorithm&)>;
Crossings crossingsFor(const schedule::Algorithm& algorithm, const CallShape& shape,
                       const Agreement& agreement);

// choose(), with what goes between hosts from elsewhere.
Result<Choice> chooseWith(const CallShape& shape, const Agreement& agreement,
                          const CrossingsOf& crossings);

}  // namespace tutti::plan
