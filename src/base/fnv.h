// FNV-1a (Fowler, Noll, Vo) over a few words: spreads enough for a hash table and for a check
// value.
#pragma once

#include <cstdint>

namespace tutti {

class Fnv {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3u; }
  uint64_t value() const { return hash_ ^ (hash_ >> 32); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace tutti
