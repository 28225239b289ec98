#include "observe/link_state.h"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::observe {
namespace {

bool isOn(const LinkState& link, const WaitNote& wait) {
  return wait.peer == link.peer && (wait.direction == Direction::kReceive) != link.isOutgoing;
}

// Several where operations of several lanes wait for the same peer.
std::string waitsOn(const LinkState& link, std::span<const Examination> found) {
  std::string text;
  for (const Examination& each : found) {
    const auto place = static_cast<size_t>(link.rank);
    if (each.name != link.communicator || place >= each.evidence.ranks.size()) continue;
    const RankView& rank = each.evidence.ranks[place];
    for (const WaitNote& wait : rank.waits) {
      if (!isOn(link, wait)) continue;
      text +=
          fmt::format("    {}, step {}, piece {}, for {:.1f} s\n", waitText(rank, wait), wait.step,
                      wait.piece, static_cast<double>(each.evidence.now - wait.since) * 1e-9);
    }
  }
  return text;
}

std::string describe(const LinkState& link) {
  std::string text = fmt::format("  rank {} {} {}, {}: ", link.rank,
                                 link.isOutgoing ? "to" : "from", link.peer, link.lane);
  if (!link.isConnected) return text + "not connected yet\n";
  text += fmt::format("{}; {} messages in, {} given back, {} of {} slots taken", link.transport,
                      link.published, link.givenBack, link.published - link.givenBack, link.slots);
  if (link.isCarried) {
    text += fmt::format("; {} messages, {} bytes {} the network", link.carriedMessages,
                        link.carriedBytes, link.isOutgoing ? "given to" : "brought by");
  }
  if (!link.notes.empty()) text += "; " + link.notes;
  return text + '\n';
}

}  // namespace

std::string linkTable(std::span<const LinkState> links, std::span<const Examination> found) {
  std::string text;
  std::string_view communicator;
  for (const LinkState& link : links) {
    if (text.empty() || link.communicator != communicator)
      text += fmt::format("communicator {}\n", link.communicator);
    communicator = link.communicator;
    text += describe(link) + waitsOn(link, found);
  }
  return text;
}

}  // namespace tutti::observe
