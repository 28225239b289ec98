#include "tools/host_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tutti::tools {
namespace {

constexpr int kMostSlots = 4096;
constexpr size_t kLongestName = 512;  // of a host, with a user's in front

Result<int> slotsOf(std::string_view text, std::string_view entry) {
  int slots = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || rest != text.data() + text.size() || slots < 1 || slots > kMostSlots)
    return invalidArgument("'{}' has '{}' slots, wanted 1 to {}", entry, text, kMostSlots);
  return slots;
}

// With a user's name in front, or a scope behind an address, too.
bool isOfHostNames(char letter) {
  constexpr std::string_view kOthers = "-._:@%";
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         kOthers.find(letter) != std::string_view::npos;
}

// What has several colons: with a user's name in front, or a scope behind, too.
bool isIpv6(const std::string& name) {
  const std::string address = name.substr(name.find('@') + 1);
  in6_addr binary{};
  return ::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &binary) == 1;
}

// As much of it as a message needs.
std::string shown(std::string_view entry) {
  constexpr size_t kMost = 80;
  return entry.size() <= kMost ? std::string(entry) : std::string(entry.substr(0, kMost)) + "...";
}

// "a:2", "[fd00::1]:2", "fd00::1"
Result<HostSlots> parseHost(std::string_view entry) {
  std::string_view name = entry;
  std::string_view slots;
  const size_t bracket = entry.rfind(']');
  const size_t colon = entry.rfind(':');
  const bool isPlainIpv6 = bracket == std::string_view::npos && entry.find(':') != colon;
  if (colon != std::string_view::npos && !isPlainIpv6 &&
      (bracket == std::string_view::npos || colon > bracket)) {
    name = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
  }
  std::string plain(name);
  std::erase_if(plain, [](char letter) { return letter == '[' || letter == ']'; });
  // What begins with a dash would be an option of ssh's.
  if (plain.empty() || plain.size() > kLongestName || plain.front() == '-' ||
      !std::ranges::all_of(plain, isOfHostNames) ||
      (plain.find(':') != std::string::npos && !isIpv6(plain)))
    return invalidArgument("'{}' names no host", shown(entry));
  HostSlots host{.name = std::move(plain)};
  if (name.size() != entry.size()) {
    TUTTI_TRY_ASSIGN(host.slots, slotsOf(slots, entry));
  }
  return host;
}

void addHost(std::vector<HostSlots>& hosts, HostSlots host) {
  const auto known = std::ranges::find(hosts, host.name, &HostSlots::name);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    known->slots += host.slots;
  }
}

// The next word of a line, taken from its front.
std::string_view takeWord(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

// `rest`: what stands behind the entry.
Result<HostSlots> parseHostLine(std::string_view entry, std::string_view rest) {
  TUTTI_TRY_ASSIGN(HostSlots host, parseHost(entry));
  for (std::string_view word = takeWord(rest); !word.empty(); word = takeWord(rest)) {
    constexpr std::string_view kSlots = "slots=";
    // How far Open MPI may go beyond the slots; we do not.
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
    if (word.starts_with(kSlots)) word.remove_prefix(kSlots.size());
    TUTTI_TRY_ASSIGN(host.slots, slotsOf(word, entry));
  }
  return host;
}

}  // namespace

Result<std::vector<HostSlots>> parseHosts(std::string_view list) {
  std::vector<HostSlots> hosts;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    TUTTI_TRY_ASSIGN(HostSlots host, parseHost(list.substr(at, end - at)));
    addHost(hosts, std::move(host));
    at = end + 1;
  }
  return hosts;
}

Result<std::vector<HostSlots>> parseHostFile(std::string_view text, std::string_view source) {
  std::vector<HostSlots> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view entry = takeWord(line);
    if (entry.empty()) continue;
    Result<HostSlots> host = parseHostLine(entry, line);
    if (!host.ok()) return invalidArgument("{}:{}: {}", source, number, host.status().message());
    addHost(hosts, std::move(host).value());
  }
  if (hosts.empty()) return invalidArgument("{}: names no hosts", source);
  return hosts;
}

Result<std::vector<RankPlace>> placeRanks(const std::vector<HostSlots>& hosts, int rankCount) {
  int all = 0;
  for (const HostSlots& host : hosts) all += host.slots;
  if (rankCount > all)
    return invalidArgument("{} ranks are wanted (-n), the hosts have {} slots", rankCount, all);
  std::vector<RankPlace> places;
  int left = rankCount == 0 ? all : rankCount;
  for (const HostSlots& host : hosts) {
    const int count = std::min(host.slots, left);
    for (int i = 0; i < count; ++i)
      places.push_back({.host = host.name, .localRank = i, .localCount = count});
    left -= count;
  }
  return places;
}

}  // namespace tutti::tools
