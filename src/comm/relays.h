// What the settings say about relays (NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL), and about the adapters
// between which they are.
#pragma once

#include "base/settings.h"
#include "comm/hash.h"
#include "plan/plan.h"

namespace tutti::comm {

inline plan::Relays relaysOf(const Settings& settings) {
  const int64_t level = settings.integer("NCCL_P2P_PXN_LEVEL");
  if (level == 0 || settings.integer("NCCL_PXN_DISABLE") != 0) return plan::Relays::kNever;
  return level == 1 ? plan::Relays::kByPrice : plan::Relays::kAlways;
}

// Equal for ranks that name the same adapters.
inline uint64_t railOf(const Settings& settings) {
  return hashOf(
      fmt::format("{}\n{}", settings.text("NCCL_SOCKET_IFNAME"), settings.text("NCCL_IB_HCA")));
}

}  // namespace tutti::comm
