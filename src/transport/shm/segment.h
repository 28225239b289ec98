// Shared memory for one link: a sealed memfd. It has no name, so nobody can guess, replace or leave
// one behind; its size is sealed, so no process can make another's access fault by truncating it;
// it needs no /dev/shm.
#pragma once

#include <cstddef>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"

namespace tutti::transport::shm {

struct Segment {
  UniqueMapping memory;
  UniqueFd fd;
};

// Zeroed, sealed against shrinking, growing and further sealing.
Result<Segment> createSegment(size_t bytes);

// Maps a segment that another process made. Refuses, with kRemoteError, one that is not sealed, not
// of this size, or another user's: nothing the other side says is trusted.
Result<UniqueMapping> mapSegment(const UniqueFd& fd, size_t bytes);

}  // namespace tutti::transport::shm
