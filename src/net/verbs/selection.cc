#include "net/verbs/selection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace tutti::net::verbs {
namespace {

std::optional<uint32_t> number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The card that a function belongs to. Virtual functions have device numbers of their own behind
// their card's, and all functions of a card share one.
std::string cardOf(const std::string& address, const MergeRules& rules) {
  const size_t dot = address.rfind('.');
  const size_t colon = address.rfind(':');
  if (dot == std::string::npos || colon == std::string::npos) return address;
  return address.substr(0, rules.virtualFunctions ? colon : dot);
}

struct Range {
  std::array<uint8_t, 16> bytes{};
  uint32_t bits = 0;  // of 128

  bool holds(const Gid& gid) const {
    for (uint32_t bit = 0; bit < bits; ++bit) {
      const auto mask = static_cast<uint8_t>(0x80 >> bit % 8);
      if (((bytes[bit / 8] ^ gid.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

Result<Range> parseRange(std::string_view text) {
  const size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  Range range;
  const bool isV4 = ::inet_pton(AF_INET, address.c_str(), &range.bytes[12]) == 1;
  if (isV4) range.bytes[10] = range.bytes[11] = 0xff;
  const uint32_t most = isV4 ? 32 : 128;
  const auto bits =
      slash == std::string_view::npos ? std::optional(most) : number(text.substr(slash + 1));
  const bool isAddress = isV4 || ::inet_pton(AF_INET6, address.c_str(), range.bytes.data()) == 1;
  if (!isAddress || !bits || *bits > most) {
    return Status(Code::kInvalidUsage,
                  fmt::format("NCCL_IB_ADDR_RANGE={}: wanted an address and its bits, as in "
                              "10.1.0.0/16",
                              text));
  }
  range.bits = *bits + (128 - most);
  return range;
}

// The higher the better; 0: not at all.
int fitOf(const Gid& gid, const GidWish& wish) {
  const int family = gid.isIpv4() ? AF_INET : AF_INET6;
  const int version = gid.kind == Gid::Kind::kRoceV2 ? 2 : 1;
  if (gid.isEmpty() || gid.kind == Gid::Kind::kInfiniBand) return 0;
  if (wish.family != 0 && wish.family != family) return 0;
  if (wish.roceVersion != 0 && wish.roceVersion != version) return 0;
  return 1 + (version == 2 ? 4 : 0) + (gid.isLinkLocal() ? 0 : 2) + (gid.isIpv4() ? 1 : 0);
}

const char* nameOf(Gid::Kind kind) {
  switch (kind) {
    case Gid::Kind::kInfiniBand: return "InfiniBand";
    case Gid::Kind::kRoceV1: return "RoCE v1";
    case Gid::Kind::kRoceV2: return "RoCE v2";
  }
  return "?";
}

}  // namespace

Result<AdapterRules> AdapterRules::parse(std::string_view text) {
  AdapterRules rules;
  std::string_view rest = text;
  if (rest.starts_with('^')) {
    rules.excludes_ = true;
    rest.remove_prefix(1);
  }
  if (rest.starts_with('=')) {
    rules.isExact_ = true;
    rest.remove_prefix(1);
  }
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    Entry entry{.name = std::string(item.substr(0, colon))};
    if (colon != std::string_view::npos) {
      const auto port = number(item.substr(colon + 1));
      if (!port || *port == 0) {
        return Status(
            Code::kInvalidUsage,
            fmt::format("NCCL_IB_HCA={}: \"{}\" ends in no port, as in mlx5_0:1", text, item));
      }
      entry.port = *port;
    }
    rules.entries_.push_back(std::move(entry));
  }
  return rules;
}

bool AdapterRules::admits(std::string_view adapter, uint32_t port) const {
  if (entries_.empty()) return true;
  const bool isNamed = std::ranges::any_of(entries_, [&](const Entry& entry) {
    const bool fits = isExact_ ? adapter == entry.name : adapter.starts_with(entry.name);
    return fits && (entry.port == 0 || entry.port == port);
  });
  return isNamed != excludes_;
}

double portSpeed(uint8_t activeSpeed, uint8_t activeWidth) {
  double lane = 0;
  switch (activeSpeed) {
    case 1: lane = 2.5; break;
    case 2: lane = 5; break;
    case 4:
    case 8: lane = 10; break;
    case 16: lane = 14; break;
    case 32: lane = 25; break;
    case 64: lane = 50; break;
    case 128: lane = 100; break;
    default: break;
  }
  switch (activeWidth) {
    case 1: return lane;
    case 2: return 4 * lane;
    case 4: return 8 * lane;
    case 8: return 12 * lane;
    case 16: return 2 * lane;
    default: return 0;
  }
}

std::vector<std::vector<size_t>> mergePorts(std::span<const Place> places,
                                            const MergeRules& rules) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string card = cardOf(places[i].address, rules);
    const auto isSameCard = [&](const std::vector<size_t>& group) {
      const Place& other = places[group.front()];
      return group.size() < rules.mostTogether && cardOf(other.address, rules) == card &&
             other.isEthernet == places[i].isEthernet;
    };
    const auto found = std::ranges::find_if(groups, isSameCard);
    if (card.empty() || !rules.ports || found == groups.end()) {
      groups.push_back({i});
    } else {
      found->push_back(i);
    }
  }
  return groups;
}

bool Gid::isEmpty() const {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

bool Gid::isIpv4() const {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         bytes[10] == 0xff && bytes[11] == 0xff;
}

bool Gid::isLinkLocal() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::string Gid::text() const {
  char place[INET6_ADDRSTRLEN] = "?";
  const bool isV4 = isIpv4();
  ::inet_ntop(isV4 ? AF_INET : AF_INET6, isV4 ? &bytes[12] : bytes.data(), place, sizeof place);
  return place;
}

Result<Gid> chooseRoceGid(std::span<const Gid> table, const GidWish& wish) {
  std::string seen;
  const Gid* best = nullptr;
  int bestFit = 0;
  Range range;
  if (!wish.range.empty()) {
    TUTTI_TRY_ASSIGN(range, parseRange(wish.range));
  }
  for (const Gid& gid : table) {
    if (gid.isEmpty()) continue;
    seen += fmt::format("{}{}: {} ({})", seen.empty() ? "" : ", ", gid.index, gid.text(),
                        nameOf(gid.kind));
    if (wish.index >= 0) {
      if (gid.index == static_cast<uint32_t>(wish.index)) return gid;
      continue;
    }
    const int fit = range.holds(gid) ? fitOf(gid, wish) : 0;
    if (fit > bestFit) {
      best = &gid;
      bestFit = fit;
    }
  }
  if (best != nullptr) return *best;
  return Status(
      Code::kSystemError,
      fmt::format("no entry of its GID table fits NCCL_IB_GID_INDEX, NCCL_IB_ADDR_FAMILY, "
                  "NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM: {}",
                  seen.empty() ? "the table is empty" : seen));
}

}  // namespace tutti::net::verbs
