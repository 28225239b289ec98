// NCCL_ALGO and NCCL_PROTO: names that a run may choose from.
//
// Forms, as NCCL's: "ring,oneshot" allows only these, "^ring" all but these,
// "allreduce:oneshot;broadcast:ring" a rule a collective, an entry without a collective is for all
// the others. Case does not matter. Names that nobody has never match, so that "^NVLS" is no error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/types.h"

namespace tutti::graph {

class NameFilter {
 public:
  NameFilter() = default;  // allows everything
  explicit NameFilter(std::string_view text);

  bool allows(Collective collective, std::string_view name) const;
  bool allowsEverything() const { return rules_.empty(); }

 private:
  struct Rule {
    std::string collective;  // lower case; empty: all others
    bool isExclusion = false;
    std::vector<std::string> names;  // lower case
  };
  const Rule* ruleFor(Collective collective) const;

  std::vector<Rule> rules_;
};

}  // namespace tutti::graph
