// Which ports of which adapters are used, which act as one, and under which address: decided from
// plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::net::verbs {

// NCCL_IB_HCA: "mlx5_0,mlx5_1:2": names that begin so, on any port or the one given; = in front:
// these very names; ^ in front: all but these; ^= both.
class AdapterRules {
 public:
  // kInvalidUsage: a port that is no number.
  static Result<AdapterRules> parse(std::string_view text);
  bool admits(std::string_view adapter, uint32_t port) const;

 private:
  struct Entry {
    std::string name;
    uint32_t port = 0;  // 0: any
  };
  bool excludes_ = false;
  bool isExact_ = false;
  std::vector<Entry> entries_;
};

// Gb/s as the standard's two numbers give it; 0 where a number is none of those.
double portSpeed(uint8_t activeSpeed, uint8_t activeWidth);

// Where a port sits.
struct Place {
  std::string address{};  // "0000:17:00.1"; empty: unknown
  bool isEthernet = false;
};
struct MergeRules {
  bool ports = true;             // of one card
  bool virtualFunctions = true;  // a card's virtual functions are the card
  size_t mostTogether = 4;
};
// The groups that act as one, of indices into `places`: ports of one card and one kind of network.
std::vector<std::vector<size_t>> mergePorts(std::span<const Place> places, const MergeRules& rules);

// An entry of a port's table of addresses.
struct Gid {
  enum class Kind : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };
  uint32_t index = 0;
  Kind kind = Kind::kInfiniBand;
  std::array<uint8_t, 16> bytes{};

  bool isEmpty() const;      // zeros
  bool isIpv4() const;       // ::ffff:a.b.c.d
  bool isLinkLocal() const;  // fe80::/10
  std::string text() const;  // "10.0.0.7", "fe80::1"
};

struct GidWish {
  int index = -1;            // NCCL_IB_GID_INDEX
  int family = 0;            // NCCL_IB_ADDR_FAMILY; 0: IPv4 rather than IPv6
  int roceVersion = 0;       // NCCL_IB_ROCE_VERSION_NUM; 0: 2 rather than 1
  std::string_view range{};  // NCCL_IB_ADDR_RANGE: 10.0.0.0/8
};
// For RoCE. kSystemError, not logged: none fits; says what there is.
Result<Gid> chooseRoceGid(std::span<const Gid> table, const GidWish& wish);

}  // namespace tutti::net::verbs
