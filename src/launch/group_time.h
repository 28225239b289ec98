// What the calls of one communicator in a group take together.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace tutti::launch {

// Collectives one after the other, sends beside receives.
class GroupTime {
 public:
  void add(Collective collective, double us) {
    if (collective == Collective::kSend) {
      sends_ += us;
    } else if (collective == Collective::kRecv) {
      receives_ += us;
    } else {
      collectives_ += us;
    }
  }
  double us() const { return collectives_ + std::max(sends_, receives_); }

 private:
  double collectives_ = 0;
  double sends_ = 0;
  double receives_ = 0;
};

}  // namespace tutti::launch
