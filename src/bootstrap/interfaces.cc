#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace tutti::bootstrap {
namespace {

// How a name list selects. "^" excludes, "=" asks for whole names; both may stand together.
struct NameList {
  bool isExcluding = false;
  bool isExact = false;
  std::vector<std::string_view> names;

  bool matches(std::string_view name) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view wanted) {
      return isExact ? name == wanted : name.starts_with(wanted);
    });
  }
  bool accepts(std::string_view name) const { return matches(name) != isExcluding; }
};

NameList parseNames(std::string_view text) {
  NameList list;
  if (text.starts_with('^')) {
    list.isExcluding = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    list.isExact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) list.names.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

bool isVirtualBridge(std::string_view name) {
  return name.starts_with("docker") || name.starts_with("virbr");
}

// Why an interface stands where it stands. Smaller ranks are tried first; "order" below turns a
// class into a number.
enum class Standing : uint8_t {
  kRootSubnet,
  kInfiniBand,
  kOrdinary,
  kVirtualBridge,
  kLoopback,
  kListed
};

int order(Standing standing) {
  switch (standing) {
    case Standing::kListed: return 0;
    case Standing::kRootSubnet: return 1;
    case Standing::kInfiniBand: return 2;
    case Standing::kOrdinary: return 3;
    case Standing::kVirtualBridge: return 4;
    case Standing::kLoopback: return 5;
  }
  return 6;
}

std::string_view chosenBecause(Standing standing) {
  switch (standing) {
    case Standing::kListed: return "NCCL_SOCKET_IFNAME admits it";
    case Standing::kRootSubnet: return "in the root's subnet";
    case Standing::kInfiniBand: return "InfiniBand goes first";
    case Standing::kOrdinary: return "first that is not loopback or virtual";
    case Standing::kVirtualBridge: return "virtual bridge, and nothing better is up";
    case Standing::kLoopback: return "loopback, and nothing better is up";
  }
  return "";
}

struct Candidate {
  Interface interface;
  Standing standing;
};

std::string label(const Interface& interface) {
  return fmt::format("{} ({})", interface.name, interface.address.hostText());
}

// Why this interface cannot be used at all; empty when it can.
std::string whyUnusable(const Interface& interface, const InterfaceRules& rules,
                        const NameList& list) {
  if (!interface.isUp) return "down";
  if (rules.family != 0 && interface.address.family() != rules.family) {
    return "not of the family NCCL_SOCKET_FAMILY asks for";
  }
  if (!list.names.empty() && !list.accepts(interface.name)) {
    return fmt::format("NCCL_SOCKET_IFNAME={} leaves it out", rules.names);
  }
  return "";
}

Standing standingOf(const Interface& interface, const InterfaceRules& rules, bool isListed) {
  if (isListed) return Standing::kListed;
  if (interface.address.isInSubnet(rules.near, interface.prefixBits)) return Standing::kRootSubnet;
  if (interface.isLoopback) return Standing::kLoopback;
  if (interface.name.starts_with("ib")) return Standing::kInfiniBand;
  return isVirtualBridge(interface.name) ? Standing::kVirtualBridge : Standing::kOrdinary;
}

bool goesBefore(const Candidate& a, const Candidate& b) {
  if (a.standing != b.standing) return order(a.standing) < order(b.standing);
  const bool isLocalA = a.interface.address.isLinkLocal();
  const bool isLocalB = b.interface.address.isLinkLocal();
  if (isLocalA != isLocalB) return isLocalB;
  return a.interface.address.family() == AF_INET && b.interface.address.family() != AF_INET;
}

void addNote(std::string& notes, const Interface& interface, std::string_view why) {
  notes += fmt::format("{}{}: {}", notes.empty() ? "" : ", ", label(interface), why);
}

int countPrefixBits(const sockaddr* mask, int family) {
  if (mask == nullptr) return family == AF_INET ? 32 : 128;
  if (family == AF_INET) {
    return std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  }
  int bits = 0;
  for (uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr) {
    bits += std::popcount(byte);
  }
  return bits;
}

}  // namespace

Result<std::vector<Interface>> listInterfaces() {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0)
    return systemError("getifaddrs", "for the interfaces of this host", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(head, freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const SocketAddress address(entry->ifa_addr);
    if (address.isEmpty()) continue;
    all.push_back(
        {.name = entry->ifa_name,
         .address = address.withPort(0),
         .prefixBits = countPrefixBits(entry->ifa_netmask, address.family()),
         .isUp = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0,
         .isLoopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return all;
}

Result<InterfaceChoice> chooseInterfaces(const std::vector<Interface>& all,
                                         const InterfaceRules& rules) {
  const NameList list = parseNames(rules.names);
  std::vector<Candidate> candidates;
  std::string skipped;
  for (const Interface& interface : all) {
    const std::string why = whyUnusable(interface, rules, list);
    if (!why.empty()) {
      addNote(skipped, interface, why);
      continue;
    }
    candidates.push_back({interface, standingOf(interface, rules, !list.names.empty())});
  }
  std::stable_sort(candidates.begin(), candidates.end(), goesBefore);
  InterfaceChoice choice;
  for (const Candidate& candidate : candidates) {
    const bool isKnown = std::any_of(
        choice.interfaces.begin(), choice.interfaces.end(),
        [&](const Interface& chosen) { return chosen.name == candidate.interface.name; });
    if (isKnown) continue;
    if (!choice.interfaces.empty() && candidate.standing == Standing::kVirtualBridge) {
      addNote(skipped, candidate.interface, "virtual");
    }
    choice.interfaces.push_back(candidate.interface);
  }
  if (choice.interfaces.empty()) {
    return invalidUsage(
        "no network interface can be used: {}. NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY change "
        "the choice",
        skipped.empty() ? "this host has none with an IP address" : skipped);
  }
  choice.reason = fmt::format("{}: {}{}{}", label(choice.interfaces.front()),
                              chosenBecause(candidates.front().standing),
                              skipped.empty() ? "" : "; skipped ", skipped);
  return choice;
}

Result<InterfaceChoice> chooseInterfaces(const InterfaceRules& rules) {
  TUTTI_TRY_ASSIGN(const std::vector<Interface> all, listInterfaces());
  TUTTI_TRY_ASSIGN(InterfaceChoice choice, chooseInterfaces(all, rules));
  log::info(log::Subsystem::kBootstrap, "bootstrap uses {}", choice.reason);
  return choice;
}

}  // namespace tutti::bootstrap
