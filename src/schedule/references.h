// Which schedules may send references: messages that name the sender's own buffer instead of
// bringing a copy, and are read from there by the receiver (wire::MessageKind::kReference). It
// saves one pass over memory, under two conditions on the program.
//
//   Content: a step that sends has its result in a user buffer: it copies one input or output
//   chunk, or also writes an output. Calm:    no rank overwrites a chunk that a message of its own
//   refers to before the receiver has read it, in place or not.
//            No message says "I have read it", so another chain of messages must imply it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

// Empty when both conditions hold on every rank, in place (input and output aliased by NCCL's
// rules) if asked; otherwise the reason. By vector clocks (Fidge 1988, Mattern 1989): "before" is
// what messages imply, not what one run happens to do.
std::string whyNotReferable(const Schedule& schedule, bool inPlace);

// By step of the rank's program, 1 where both conditions hold for the messages it sends. They hold
// or fail a message at a time, and none's form changes what others imply, so a rank may refer with
// some and copy the rest as it likes. `inPlace` is this rank's own.
std::vector<uint8_t> referableSteps(const Schedule& schedule, Rank rank, bool inPlace);

// By step of the rank's program, 1 where later messages to the rank imply that what the step's
// messages refer to has been read by the time the program ends: nobody needs to say so.
std::vector<uint8_t> answeredSteps(const Schedule& schedule, Rank rank);

// The catalogue's algorithms for which it holds at every rank count; a test compares. All-to-all
// only out of place: the executor sends from a copy when a rank calls it in place.
bool isReferable(const Algorithm& algorithm);

}  // namespace tutti::schedule
