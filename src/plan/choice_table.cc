#include "plan/choice_table.h"

#include <algorithm>

#include "base/units.h"

namespace tutti::plan {
namespace {

using enum Collective;

// Measured 2026-11-20 with `tutti perf` on a virtual machine of 2 cores with AVX2 that others used
// meanwhile (load 3 to 6): 2, 4 and 8 ranks, 1 KiB to 8 MiB by factors of 8, the algorithms in
// turn, medians of 5 rounds; twice. So a limit is good to a factor of 4, and no closer call
// than 1.5 to 1 was believed. Long all-reduces and reductions: two-shot and direct ones, whose
// messages are references from 16 KiB a chunk on, took 1.5 to 4 times as long as PAT or ring, with
// 2 ranks (where all take the same steps) as with 8; with copies they had been level. Beyond 8
// ranks, where nothing was measured, hops decide for short vectors and the number of links for long
// ones: each link is memory that falls out of the caches. Reduce-scatter on 2 ranks: direct and PAT
// take the same steps, and only the first is known to be referable (references.h); 0.73 to 0.88 of
// the time from 64 KiB on (2 CPUs of an Intel Xeon VM, 2026-11-21).
constexpr ChoiceRow kRows[] = {
    {kAllReduce, 4, 8_KiB, "oneshot"},
    {kAllReduce, 4, kAnyBytes, "pat"},
    {kAllReduce, 8, 2_KiB, "oneshot"},
    {kAllReduce, 8, 64_KiB, "twoshot"},
    {kAllReduce, 8, kAnyBytes, "pat"},
    {kAllReduce, 16, 4_KiB, "doubling"},
    {kAllReduce, 16, 128_KiB, "twoshot"},
    {kAllReduce, 16, kAnyBytes, "pat"},
    {kAllReduce, kAnyRanks, 16_KiB, "doubling"},
    {kAllReduce, kAnyRanks, 256_KiB, "tree"},
    {kAllReduce, kAnyRanks, 16_MiB, "pat"},
    {kAllReduce, kAnyRanks, kAnyBytes, "ring"},

    {kAllGather, 8, kAnyBytes, "direct"},
    {kAllGather, 16, 1_MiB, "direct"},
    {kAllGather, 16, kAnyBytes, "pat"},
    {kAllGather, kAnyRanks, 16_MiB, "pat"},
    {kAllGather, kAnyRanks, kAnyBytes, "ring"},

    {kReduceScatter, 2, kAnyBytes, "direct"},
    {kReduceScatter, 16, 32_KiB, "direct"},
    {kReduceScatter, 16, kAnyBytes, "pat"},
    {kReduceScatter, kAnyRanks, 16_MiB, "pat"},
    {kReduceScatter, kAnyRanks, kAnyBytes, "ring"},

    {kBroadcast, 8, 128_KiB, "direct"},
    {kBroadcast, 8, kAnyBytes, "ring"},
    {kBroadcast, kAnyRanks, 1_MiB, "tree"},
    {kBroadcast, kAnyRanks, kAnyBytes, "ring"},

    {kReduce, 8, 4_KiB, "direct"},
    {kReduce, 8, kAnyBytes, "ring"},
    {kReduce, kAnyRanks, 1_MiB, "tree"},
    {kReduce, kAnyRanks, kAnyBytes, "ring"},

    {kAllToAll, 16, kAnyBytes, "direct"},
    {kAllToAll, kAnyRanks, 4_MiB, "direct"},
    {kAllToAll, kAnyRanks, kAnyBytes, "pairwise"},
};

}  // namespace

std::span<const ChoiceRow> choiceRows(Collective collective, int32_t rankCount) {
  const std::span<const ChoiceRow> rows(kRows);
  const auto first = std::ranges::find_if(rows, [&](const ChoiceRow& row) {
    return row.collective == collective && rankCount <= row.maxRanks;
  });
  const auto last = std::find_if(first, rows.end(), [&](const ChoiceRow& row) {
    return row.collective != collective || row.maxRanks != first->maxRanks;
  });
  return {first, last};
}

}  // namespace tutti::plan
