#include "plan/algorithm_filter.h"

namespace tutti::plan {

bool AlgorithmFilter::allows(Collective collective, std::string_view algorithm) const {
  return schedule::algorithms(collective).size() == 1 || names_.allows(collective, algorithm);
}

std::string listNames(std::span<const schedule::Algorithm> algorithms) {
  std::string text;
  for (const schedule::Algorithm& algorithm : algorithms) {
    if (!text.empty()) text += ", ";
    text += algorithm.name;
  }
  return text;
}

}  // namespace tutti::plan
