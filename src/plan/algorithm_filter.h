// NCCL_ALGO: which algorithms of the catalogue a run may choose from; graph/name_filter.h has the
// forms.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/name_filter.h"
#include "schedule/catalog.h"
#include "wire/types.h"

namespace tutti::plan {

class AlgorithmFilter {
 public:
  explicit AlgorithmFilter(std::string_view text) : names_(text) {}

  // Collectives with a single algorithm are never filtered: NCCL_ALGO speaks of those that have a
  // choice. All-to-all only by rules that name it: NCCL has no algorithms for it, and "ring" for
  // all others must not forbid it.
  bool allows(Collective collective, std::string_view algorithm) const;

 private:
  graph::NameFilter names_;
};

// "ring, oneshot"
std::string listNames(std::span<const schedule::Algorithm> algorithms);

}  // namespace tutti::plan
