// What a communicator's config asks of the network between hosts.
#pragma once

#include <compare>
#include <string>

namespace tutti::net {

inline constexpr int kNoTrafficClass = -1;  // as the network does by itself

struct NetworkWish {
  std::string name{};                  // as NCCL_NET has it, which goes before; empty: as that says
  int trafficClass = kNoTrafficClass;  // of the links' packets, where the network has such
  auto operator<=>(const NetworkWish&) const = default;
};

}  // namespace tutti::net
