// Network interfaces: what there is, and which of them sockets should use and why.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

// One address of one interface; an interface with several addresses comes several times.
struct Interface {
  std::string name;       // "eth0"
  SocketAddress address;  // port 0
  int prefixBits = 0;     // of the subnet: 24 for 255.255.255.0
  bool isUp = true;       // up and running
  bool isLoopback = false;
};

struct InterfaceRules {
  // NCCL_SOCKET_IFNAME: comma-separated prefixes; "=eth0,eth1" exact names; "^docker,lo" all but
  // these; "^=eth0" all but exactly these. Empty: the default order.
  std::string_view names{};
  int family = 0;        // AF_INET, AF_INET6, 0 any
  SocketAddress near{};  // prefer an interface in this address's subnet; empty: no preference.
                         // Ignored when names are given.
};

struct InterfaceChoice {
  std::vector<Interface> interfaces;  // usable ones, best first, one address each; never empty
  std::string reason;  // "eth0 (10.0.0.5): first that is not loopback; skipped docker0
                       // (172.17.0.1): virtual"
};

// All IPv4 and IPv6 addresses of this host, in the system's order.
Result<std::vector<Interface>> listInterfaces();

// Pure. The default order: in the subnet of `near`; ib*; others; docker* and virbr*; lo. IPv4
// before IPv6, routable before link-local. kInvalidUsage when none is left, with each interface and
// why it was passed over.
Result<InterfaceChoice> chooseInterfaces(const std::vector<Interface>& all,
                                         const InterfaceRules& rules);

// Both steps for this host.
Result<InterfaceChoice> chooseInterfaces(const InterfaceRules& rules);

}  // namespace tutti::bootstrap
