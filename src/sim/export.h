// A call's flows in other tools' forms. Each keeps the bytes between every pair of ranks; what a
// form cannot say is named beside it. docs/SIMULATOR.md describes ours. Pure: text goes to a sink.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/flows.h"
#include "sim/simulate.h"

namespace tutti::sim {

enum class Format : uint8_t {
  kJsonLines,      // ours: everything, a flow a line
  kSimai,          // SimCCL's CSV: no routes, no overhead, no slots
  kGoal,           // GOAL text (LogGOPSim): no routes; data bytes
  kGoalBinary,     // the same, packed
  kChakra,         // execution traces, a file a rank: whole microseconds
  kMsccl,          // MSCCL XML: rings only; one piece
  kHtsim,          // htsim's connection matrix: no channels, starts by triggers
  kSimaiTopology,  // the cluster itself, for SimAI and ns-3: switches and links
  kHtsimTopology,  // the same for htsim: two or three tiers, a port a rank
};
std::string_view nameOf(Format format);  // "jsonl"
inline constexpr int kFormatCount = 9;

// Takes the text of a file bit by bit; `suffix` is "" or, of forms with a file a rank, ".3.et".
using Sink = std::function<Status(std::string_view suffix, std::string_view text)>;

// kInvalidArgument where the form cannot hold the flows, with the reason.
Status writeFlows(Format format, const FlowTable& table, const Sink& sink);
Status writeTopology(const Cluster& cluster, const Sink& sink);
Status writeHtsimTopology(const Cluster& cluster, const Sink& sink);

// One rank's time line for chrome://tracing and Perfetto: a row a channel.
std::string chromeTrace(std::span<const Span> spans, Rank rank);

}  // namespace tutti::sim
