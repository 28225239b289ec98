// InfiniBand and RoCE as a fabric (NCCL_NET=IB): ports of adapters that libibverbs knows, opened
// when first asked for, so the library runs where there is none.
#pragma once

#include <memory>

#include "base/rng.h"
#include "base/status.h"
#include "net/fabric.h"
#include "net/verbs_options.h"

namespace tutti::net::verbs {

// `rng` outlives the fabric. kSystemError, not logged: no libibverbs, or no port that can be used,
// with each port and why. kInvalidUsage: a setting that cannot be read.
Result<std::unique_ptr<Fabric>> open(const VerbsOptions& options, Rng& rng);

}  // namespace tutti::net::verbs
