// Links of a process's ranks at one moment, for its bundle. Other processes cannot see them: what a
// link is to its rank lies in that rank's memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "observe/examination.h"

namespace tutti::observe {

// One end of one link.
struct LinkState {
  std::string communicator;  // as Examination::name
  int32_t rank = 0;
  int32_t peer = 0;
  bool isOutgoing = false;
  std::string_view lane;       // "collectives"
  std::string_view transport;  // "shm"; empty where it is not connected
  bool isConnected = false;
  // Messages; of those published, so many that the receiver has said it is through with, which it
  // does half a ring at a time.
  uint64_t published = 0;
  uint64_t givenBack = 0;
  uint32_t slots = 0;
  // Where a network carries it: what that has been given, or has brought.
  bool isCarried = false;
  uint64_t carriedMessages = 0;
  uint64_t carriedBytes = 0;
  std::string notes;  // "its receiver sleeps", "its sender has aborted"; several with commas
};

// A line a link, by communicator and rank, with the wait that is on it, if the rank's page tells.
std::string linkTable(std::span<const LinkState> links, std::span<const Examination> found);

}  // namespace tutti::observe
