// NCCL_ALGO: which algorithms a run may choose from.
//
// Forms, as NCCL's: "ring,oneshot" allows only these, "^ring" all but these,
// "allreduce:oneshot;broadcast:ring" a rule a collective, an entry without a collective is for all
// the others. Case does not matter. Names of algorithms that this library does not have are known
// but never match, so that "^NVLS" is no error.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/catalog.h"
#include "wire/types.h"

namespace tutti::plan {

class AlgorithmFilter {
 public:
  explicit AlgorithmFilter(std::string_view text);

  // Collectives with a single algorithm are never filtered: NCCL_ALGO speaks of those that have a
  // choice.
  bool allows(Collective collective, std::string_view algorithm) const;

 private:
  struct Rule {
    std::string collective;  // lower case; empty: all others
    bool isExclusion = false;
    std::vector<std::string> names;  // lower case
  };
  const Rule* ruleFor(Collective collective) const;

  std::vector<Rule> rules_;
};

// "ring, oneshot"
std::string listNames(std::span<const schedule::Algorithm> algorithms);

}  // namespace tutti::plan
