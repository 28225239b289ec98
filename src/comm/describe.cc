// A communicator as text: what ncclTuttiCommDump gives. Everything it reads is constant once the
// communicator has initialised.
#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/char_field.h"
#include "comm/communicator.h"
#include "comm/graphs.h"
#include "comm/machine.h"
#include "comm/process.h"
#include "graph/print.h"

namespace tutti::comm {
namespace {

std::string indented(const std::string& text) {
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines += "  " + text.substr(at, end - at) + '\n';
    at = end + 1;
  }
  return lines;
}

std::string describePeer(const bootstrap::PeerInfo& peer, const graph::MergedGraph& graph) {
  std::string text = fmt::format("  {:>5}  host {} (node {})  pid {}  {} usable CPU{}", peer.rank,
                                 textOf(peer.hostName), graph.nodeOf(Rank{peer.rank}),
                                 peer.processId, peer.usableCpus, peer.usableCpus == 1 ? "" : "s");
  if (peer.deviceIndex >= 0) text += fmt::format("  GPU {}", peer.deviceIndex);
  return text + '\n';
}

std::string describeSettings(const Settings& settings) {
  std::string text;
  for (const SettingValue& each : settings.values()) {
    if (each.isSet() && each.info->noEffect.empty())
      text += fmt::format("  {}={} ({})\n", each.info->name, each.text, each.source);
  }
  return text.empty() ? "  all at their defaults\n" : text;
}

// Links that a network carries, by what they have carried.
std::string describeUses(const channel::LinkSet* links) {
  std::string text;
  for (const channel::LinkSet::Use& each :
       links == nullptr ? std::vector<channel::LinkSet::Use>{} : links->uses()) {
    text += fmt::format("  {} {:>5} by {}{}: {} messages, {} bytes\n",
                        each.isOutgoing ? "to  " : "from", index(each.peer), each.transportName,
                        each.lane == channel::Lane::kPointToPoint ? ", sends and receives" : "",
                        each.carried.messages, each.carried.bytes);
  }
  return text.empty() ? text : "\nlinks over a network so far\n" + text;
}

}  // namespace

std::string_view Communicator::stateName() const {
  switch (state_.load(std::memory_order_acquire)) {
    case State::kNew: return "not initialised";
    case State::kInitialising: return "initialising";
    case State::kReady: return runner_->hasFailed() ? "failed" : "ready";
    case State::kFailed: return "initialisation failed";
    case State::kRevoked: return "revoked";
    case State::kFinalized: return "finalized";
    case State::kOutside: return "in no communicator of the split";
  }
  return "?";
}

std::string Communicator::describeGpuDirect() const {
  if (!gpuDirect_.isUsed) return fmt::format("no GPUDirect: {}", gpuDirect_.reason);
  return fmt::format("GPUDirect from {} bytes on{}: {}", gpuDirect_.fromBytes,
                     gpuDirect_.foldsOnGpu ? "" : ", calls that reduce excepted (no kernels)",
                     gpuDirectView_.description);
}

// The host's graphs are made for this: nothing else needs them.
std::string Communicator::describeGraphs() {
  std::string text =
      fmt::format("\nneighbours\n  {}\n", rankCount() < 2 ? "none" : graph::drawRing(graph_, 0));
  if (device_.accelerator() == nullptr) return text;
  Result<topology::Description> machine = process_.machine(true);
  if (!machine.ok()) return text + fmt::format("\ngraphs\n  {}\n", machine.status().message());
  setRanks(host_, machine.value());
  const std::optional<HostGraphs> graphs = planHost(process_.settings(), machine.value());
  text += "\ngraphs of this host's GPUs\n";
  return text + (graphs ? indented(comm::describe(*graphs)) : "  fewer than two GPUs\n");
}

Result<std::string> Communicator::describe() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kNew || state == State::kInitialising) return checkReady();
  std::string text = fmt::format("communicator {}{}{}: rank {} of {}, {}, on {}\n",
                                 static_cast<const void*>(this), name().empty() ? "" : " ", name(),
                                 index(rank()), rankCount(), stateName(), device_.caps().name);
  if (virtualLauncher_ != nullptr)
    return text + '\n' + virtualLauncher_->describe() + "\nsettings that were set\n" +
           describeSettings(process_.settings());
  if (state == State::kFailed || state == State::kOutside || planner_ == nullptr) return text;
  text += "\nranks\n";
  for (const bootstrap::PeerInfo& peer : peers_) text += describePeer(peer, graph_);
  text += describeGraphs();
  const plan::Agreement& agreement = planner_->agreement();
  text += "\nalgorithms, by bytes of the whole vector\n";
  text += indented(hasKernels() ? describeChoices(gpuLimits_) : describeChoices(agreement));
  if (!noPeersReason_.empty())
    text += fmt::format("\nthrough host memory\n  {}: two pinned slots of {} bytes\n",
                        noPeersReason_, stagingBytes_);
  if (!noPeersReason_.empty() && !agreement.isOneHost) text += "  " + describeGpuDirect() + '\n';
  if (agreement.tuner != nullptr)
    text += fmt::format("  tuner plug-in {}\n", agreement.tuner->name());
  const plan::NetworkReduction& network = agreement.inNetwork;
  if (network.headCount > 0) {
    text += fmt::format("  collective network {}: {} heads a host, ranks {} on stand for it\n",
                        network.name, network.headCount, rankCount());
  } else if (!network.obstacle.empty()) {
    text += fmt::format("  no collective network: {}\n", network.obstacle);
  }
  text += fmt::format("\nmessages\n  {} slots of {} bytes a link; {}; {:.1f} ranks a CPU\n",
                      agreement.geometry.slotCount, agreement.geometry.slotBytes,
                      agreement.readsPeers ? "long ones are read from the sender's buffer"
                      : agreement.readsByKernel
                          ? "long ones may be read from the sender's buffer by the kernel"
                          : "long ones are copied",
                      agreement.ranksPerCpu);
  if (helpers_ > 0) text += fmt::format("  long calls have up to {} helper threads\n", helpers_);
  return text + describeUses(links_.get()) + "\nsettings that were set\n" +
         describeSettings(process_.settings());
}

}  // namespace tutti::comm
