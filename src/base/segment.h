// Memory that processes share: a sealed memfd. It has no name, so nobody can guess, replace or
// leave one behind; its size is sealed, so no process can make another's access fault by truncating
// it; it needs no /dev/shm.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"

namespace tutti {

struct Segment {
  UniqueMapping memory;
  UniqueFd fd;
};

enum class SegmentAccess { kRead, kReadWrite };

// What it is for: `what` stands in messages ("a shared-memory link"), `name` in /proc/PID/maps,
// `instead` says which setting does without.
struct SegmentPurpose {
  const char* name;
  std::string_view what;
  std::string_view instead;
};

// Takes all pages of the file now. A page of a memfd that cannot be had later is a SIGBUS at its
// first touch, where the kernel keeps strict account of memory (vm.overcommit_memory 2); elsewhere
// it is not, and taking the pages early would make every unused link cost its full size.
Status reserveSegment(const UniqueFd& fd, size_t bytes, const SegmentPurpose& purpose);

// Zeroed, sealed against shrinking, growing and further sealing; reserved where that is needed.
Result<Segment> createSegment(size_t bytes, const SegmentPurpose& purpose);

// Maps a segment that another process made. Refuses, with kRemoteError, one that is not sealed, not
// of this size, or another user's: nothing the other side says is trusted.
Result<UniqueMapping> mapSegment(const UniqueFd& fd, size_t bytes, SegmentAccess access);

}  // namespace tutti
