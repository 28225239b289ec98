// The collectives' algorithms: each function writes one rank's program, so that a rank of a large
// communicator builds its own and no other. catalog.h lists them with their costs;
// docs/ALGORITHMS.md draws them. Pure, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

struct ScheduleOptions {
  int32_t rankCount = 1;
  Rank root{0};                   // of a rooted collective; of a send or receive the receiver
  Rank sender{0};                 // of a send or receive only
  std::span<const Rank> order{};  // rings: order[i] sends to order[i + 1]; a permutation of all
                                  // ranks, empty for 0, 1, 2, ... Other algorithms are placed in
                                  // an order by buildProgram (catalog.h).
  int32_t hostCount = 1;  // hierarchical, rail, networks of blocks: so many hosts hold as many
                          // ranks each, a host's next to each other; divides rankCount
  int32_t lagSlots = 0;  // rings, one-shot, hierarchical: messages that a link between hosts takes;
                         // where they are enough, what waits for one lags behind (schedule.h)
  std::span<const int32_t> hostStarts{};  // the networks' heads: each host's first place,
                                          // ascending, where hosts do not hold as many each
  int32_t headCount = 1;  // ranks of a host that hand data to the network, each its own part; every
                          // host holds as many
};

// REQUIRES for all: 0 <= rank, root, sender < rankCount. One rank alone copies its input to its
// output.

// Rings (ring.cc). Chunk j of all-reduce, and block j of reduce-scatter, starts at the rank after j
// in the ring and is folded once a rank, the arriving partial first, ending at j: ((x[j+1] +
// x[j+2]) + ...) + x[j]. Need two slots a link.
Program ringAllReduce(const ScheduleOptions& options, Rank rank);
Program ringAllGather(const ScheduleOptions& options, Rank rank);
Program ringReduceScatter(const ScheduleOptions& options, Rank rank);

// Chains along the ring (ring.cc), one chunk: broadcast from the root on; reduce from the rank
// after the root round to the root,
// ((x[root+1] + x[root+2]) + ...) + x[root].
Program ringBroadcast(const ScheduleOptions& options, Rank rank);
Program ringReduce(const ScheduleOptions& options, Rank rank);

// Every rank sends its whole input to every other, then folds all of them in rank order 0, 1, ...
// (oneshot.cc), one chunk.
Program oneShotAllReduce(const ScheduleOptions& options, Rank rank);

// Binary trees from the root (tree.cc), two for two chunks from three ranks on: up, down, or, from
// rank 0 (the options' root), up and down again. Folded in the order of the tree's positions, a
// subtree at a time.
Program treeAllReduce(const ScheduleOptions& options, Rank rank);
Program treeBroadcast(const ScheduleOptions& options, Rank rank);
Program treeReduce(const ScheduleOptions& options, Rank rank);

// One hop (direct.cc): whoever has the data sends it to each that wants it. Folds in one step: a
// reduction in rank order, reduce-scatter in the order of the ring.
Program directAllGather(const ScheduleOptions& options, Rank rank);
Program directReduceScatter(const ScheduleOptions& options, Rank rank);
Program directBroadcast(const ScheduleOptions& options, Rank rank);
Program directReduce(const ScheduleOptions& options, Rank rank);

// Two hops (twoshot.cc): a chunk goes to its owner, from there to all that want it. All-reduce has
// a chunk a rank; broadcast and reduce one a rank but the root. Folds in one step: all-reduce in
// the order of the ring, reduce in rank order. All-reduce needs two slots a link.
Program twoShotAllReduce(const ScheduleOptions& options, Rank rank);
Program twoShotBroadcast(const ScheduleOptions& options, Rank rank);
Program twoShotReduce(const ScheduleOptions& options, Rank rank);

// All-reduce of hostCount hosts (hierarchical.cc), a chunk a rank: folded inside each host, then by
// the chunk's owner, each in one step and in rank order; between hosts goes what one rank a host
// would send. With one host, or a rank a host, it is two-shot. Needs two slots a link.
Program hierarchicalAllReduce(const ScheduleOptions& options, Rank rank);

// All-reduce of several hosts whose network reduces (in_network.cc). Ranks from rankCount on are
// the network: one for each head of a host, which folds what the hosts' heads of one seat send.
// Chain: one head a host, down the host's ranks to it and back. Direct: headCount of them, a part
// of the vector each, which all ranks of the host hand them and get from them. With one host there
// is no network. Four chunks a head are under way.
Program collnetChainAllReduce(const ScheduleOptions& options, Rank rank);
Program collnetDirectAllReduce(const ScheduleOptions& options, Rank rank);
int32_t collnetChunkCount(int32_t rankCount);  // with one head

// All-gather and reduce-scatter of hostCount hosts whose network gathers and scatters
// (in_network_blocks.cc), with ranks that are the network as above. Each host hands in a seat's
// chunk, or a part of it for every host, as often as it has seats; four chunks a block and head.
Program collnetDirectAllGather(const ScheduleOptions& options, Rank rank);
Program collnetDirectReduceScatter(const ScheduleOptions& options, Rank rank);
int32_t collnetBlockChunkCount(int32_t rankCount);  // with one head

// Whole vectors exchanged at distances 1, 2, 4, ... (doubling.cc), one chunk. Folds in rank order,
// half by half; above a power of two, as many pairs of ranks fold first as there are ranks over.
Program doublingAllReduce(const ScheduleOptions& options, Rank rank);

// A binomial tree a chunk (pat.cc), links to ranks at powers of two only. Folds along the circle
// from the chunk's owner, a subtree at a time. All-reduce needs two slots a link.
Program patAllReduce(const ScheduleOptions& options, Rank rank);
Program patAllGather(const ScheduleOptions& options, Rank rank);
Program patReduceScatter(const ScheduleOptions& options, Rank rank);

// Rounds of disjoint pairs (rounds.cc): in round k rank r exchanges with rank (k - r) mod n, so it
// works in place.
Program pairwiseAllToAll(const ScheduleOptions& options, Rank rank);

// All blocks are sent, then all are received, each rank beginning with its neighbour (rounds.cc).
// In place too: what is overwritten has been sent.
Program directAllToAll(const ScheduleOptions& options, Rank rank);

// All-to-all of hostCount hosts (rail.cc): blocks for another seat of another host are passed on by
// the rank of the own host in that seat. With one host it is direct. Needs four slots a link.
Program railAllToAll(const ScheduleOptions& options, Rank rank);

// The root receives from (sends to) every other rank, beginning with the one after it (rounds.cc).
Program directGather(const ScheduleOptions& options, Rank rank);
Program directScatter(const ScheduleOptions& options, Rank rank);

// One sender, one receiver (transfer.cc); the same rank: a local copy. Other ranks have nothing to
// do.
Program directTransfer(const ScheduleOptions& options, Rank rank);

}  // namespace tutti::schedule
