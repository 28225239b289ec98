#include "graph/nccl_constants.h"

namespace tutti::graph {
namespace {

// What of a tree's bandwidth is left, from 64 bytes up, in doublings. LL up to 64 KiB and Simple at
// 1 and 2 MiB follow from the times that NCCL 2.12.12 printed; nothing else is published. Beside
// the known sizes the nearest known share is taken; Simple goes on as it rises between the two (a
// full pipeline loses nothing); LL128, of which nothing is known, loses what LL does.
constexpr std::array<double, kTreeSizes> kTreeLl = {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7,
                                                    .7,  .7,  .6,  .6,  .6, .6, .6, .6,
                                                    .6,  .6,  .6,  .6,  .6, .6, .6, .6};
constexpr std::array<double, kTreeSizes> kTreeSimple = {.5, .5, .5, .5, .5,  .5,  .5,  .5,
                                                        .5, .5, .5, .5, .5,  .5,  .5,  .6,
                                                        .7, .8, .9, 1., 1.0, 1.0, 1.0, 1.0};

// Rows are Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT; columns LL, LL128, Simple.
// A hop of CollNet inside a node is not published: 3.7 and 2.8 follow from the table that NCCL
// 2.29.2 printed for 2 x H100. Nor is a tree's hop over PCI: NVLink's, longer as a ring's is.
constexpr NcclConstants k229 = {
    .version = "2.29",
    .baseUs =
        {{{6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}},
    .nvLinkUs = {{{.6, 1.25, 4},
                  {.6, 1.9, 3.4},
                  {0, 0, 3.7},
                  {0, 0, 2.8},
                  {25, 25, 25},
                  {25, 25, 25},
                  {0, 0, 0}}},
    .pciUs = {{{1, 1.64, 6.7},
               {1, 2.5, 5.7},
               {0, 0, 3.7},
               {0, 0, 2.8},
               {0, 0, 0},
               {0, 0, 0},
               {0, 0, 0}}},
    .networkUs = {{{5, 8.5, 14},
                   {2.7, 4, 14},
                   {0, 0, 31},
                   {0, 0, 30},
                   {0, 0, 18},
                   {0, 0, 20.9},
                   {0, 0, 14}}},
    .generations = {{{0, {39, 39, 20.4}, {kUncapped, kUncapped, kUncapped}, 0},
                     {80, {87.7, 22.5, 19}, {kUncapped, kUncapped, kUncapped}, 0},
                     {90, {141, 45, 35}, {38.7, 41.4, 36}, .85},
                     {100, {282, 90, 70}, {70, 42.8, 24}, .74}}},
    .ringLlShare = .5,
    .ringLlShareInside = .5,
    .networkSimpleFactor = 3,
    .plateauFactor = 1.4,
    .plateauFactorOld = 1.9,
    .treeShare = {{kTreeLl, kTreeLl, kTreeSimple}},
};

// Agrees with the published predictions to 0.01 %. These fix the sums (a tree's LL latency is 49.6
// us there, a ring's 122.4), not each term: 1.8 us a PCI hop is what both sums share. What they do
// not show (NVLink, LL128, CollNet) is as in 2.29.
constexpr NcclConstants k212 = {
    .version = "2.12",
    .baseUs =
        {{{4.4, 4.4, 0}, {3.6, 10, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
    .nvLinkUs = {{{.6, 1.25, 28},
                  {.6, 1.9, 3.4},
                  {0, 0, 3.7},
                  {0, 0, 2.8},
                  {0, 0, 0},
                  {0, 0, 0},
                  {0, 0, 0}}},
    .pciUs = {{{1.8, 1.64, 28},
               {1.8, 2.5, 5.7},
               {0, 0, 3.7},
               {0, 0, 2.8},
               {0, 0, 0},
               {0, 0, 0},
               {0, 0, 0}}},
    .networkUs =
        {{{5, 8.5, 28}, {2.7, 4, 28}, {0, 0, 31}, {0, 0, 30}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
    .generations = {{{0, {39, 39, 20.4}, {kUncapped, kUncapped, kUncapped}, 0},
                     {80, {87.7, 22.5, 19}, {kUncapped, kUncapped, kUncapped}, 0},
                     {90, {141, 45, 35}, {38.7, 41.4, 36}, 0},
                     {100, {282, 90, 70}, {70, 42.8, 24}, 0}}},
    .ringLlShare = .25,
    .ringLlShareInside = .25,
    .networkSimpleFactor = 3,
    .plateauFactor = 1.9,
    .plateauFactorOld = 1.9,
    .treeShare = {{kTreeLl, kTreeLl, kTreeSimple}},
};

}  // namespace

const NcclConstants& nccl229() { return k229; }
const NcclConstants& nccl212() { return k212; }

}  // namespace tutti::graph
