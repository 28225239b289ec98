// On whom a rank's kernels may wait, as far as the board tells: the host does not see it, but it
// sees who has not called what this rank runs, or can no longer run it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "observe/diagnosis.h"

namespace tutti::launch {

using DeathTest = std::function<bool(const observe::RankView&)>;

// `entry` is the recorder's number of the last call of the oldest launch that still runs. Where the
// board has forgotten it, since the rank went on calling, the oldest call that it holds stands in.
std::vector<observe::WaitNote> findGpuWaits(const std::vector<observe::RankView>& ranks,
                                            int32_t self, uint64_t entry, const DeathTest& isDead);

// Peers that have left without calling our newest collective, where that still runs: it cannot end.
// Of transfers the board cannot tell.
std::vector<observe::WaitNote> findAbandoned(const std::vector<observe::RankView>& ranks,
                                             int32_t self);

// Peers whose process ended without the library's hearing of it.
std::vector<observe::WaitNote> findDeaths(const std::vector<observe::RankView>& ranks, int32_t self,
                                          uint64_t entry, const DeathTest& isDead);

}  // namespace tutti::launch
