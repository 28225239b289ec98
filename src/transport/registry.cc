#include "transport/registry.h"

#include "transport/collnet/collnet_reducer.h"
#include "transport/local/local_transport.h"
#include "transport/net/net_transport.h"
#include "transport/shm/shm_transport.h"

namespace tutti::transport {
namespace {

std::shared_ptr<Transport> openNet(const TransportOptions& options) {
  return std::make_shared<net::NetTransport>(
      net::NetTransportOptions{.provider = tutti::net::openNetwork(options.network),
                               .timeout = options.timeout,
                               .handoff = options.shmDisabled ? nullptr : options.handoff,
                               .relayToken = options.relayToken,
                               .rng = options.rng});
}

}  // namespace

Transports openTransports(const TransportOptions& options) {
  Transports transports;
  transports.push_back(std::make_shared<local::LocalTransport>(*options.rng));
  transports.push_back(std::make_shared<shm::ShmTransport>(shm::ShmOptions{
      .handoff = options.handoff, .disabled = options.shmDisabled, .timeout = options.timeout}));
  transports.push_back(openNet(options));
  return transports;
}

Transports withOtherNetwork(const Transports& transports, const TransportOptions& options) {
  Transports others = transports;
  others.back() = openNet(options);
  return others;
}

Result<ReducerLinks> openReducer(ReducerOptions options) {
  return collnet::openLinks(std::move(options));
}

Result<Transport*> pick(const Transports& transports, const bootstrap::PeerInfo& sender,
                        const bootstrap::PeerInfo& receiver) {
  std::string reasons;
  for (const std::shared_ptr<Transport>& transport : transports) {
    const std::string obstacle = transport->obstacle(sender, receiver);
    if (obstacle.empty()) return transport.get();
    if (!reasons.empty()) reasons += "; ";
    reasons += fmt::format("{}: {}", transport->caps().name, obstacle);
  }
  return invalidUsage("no transport connects rank {} to rank {}: {}", sender.rank, receiver.rank,
                      reasons);
}

}  // namespace tutti::transport
