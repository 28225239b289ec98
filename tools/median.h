#pragma once

#include <algorithm>
#include <vector>

namespace tutti::tools {

// Of an even number the mean of the two in the middle. `values` must not be empty.
inline double medianOf(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tutti::tools
