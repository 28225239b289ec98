#include "schedule/algorithms.h"

namespace tutti::schedule {

Program directTransfer(const ScheduleOptions& options, Rank rank) {
  const bool sends = rank == options.sender;
  const bool receives = rank == options.root;
  ProgramBuilder program;
  if (sends || receives) {
    program.add(
        {.chunk = 0,
         .sources = {sends ? ProgramBuilder::input(0) : program.from(options.sender)},
         .destinations = {receives ? ProgramBuilder::output(0) : program.to(options.root)}});
  }
  return std::move(program).take();
}

}  // namespace tutti::schedule
