// What ranks put in and what must come out: seeded inputs and the results computed in float64.
//
// Values repeat with a prime period, so the expected result of a vector of any length is one small
// table, and no plausible chunk size is a multiple of it: data that landed in the wrong place is
// seen. Inputs of floating sums and products are chosen so that every partial result is
// representable in the type, whatever the order of the ranks; so these compare exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "wire/types.h"

namespace tutti::tools {

inline constexpr size_t kPeriod = 16381;  // elements; prime

// One period of elements, and how far a result may be off.
struct Pattern {
  DataType type = DataType::kFloat32;
  std::vector<unsigned char> bits = {};  // kPeriod elements in the type's own form
  std::vector<double> reference = {};    // empty: the bits must be equal
  std::vector<double> tolerance = {};    // absolute, same length as reference
};

struct ValueSpec {
  DataType type = DataType::kFloat32;
  std::optional<ReduceOp> op = {};  // none: bits are only moved, so all bit patterns occur, NaNs
                                    // too
  int rankCount = 1;
  uint64_t seed = 1;
};

bool isFloating(DataType type);

// What `rank` holds.
Pattern makeInput(const ValueSpec& spec, int rank);

// What the reduction of all ranks' inputs must be. REQUIRES: spec.op.
Pattern makeReduced(const ValueSpec& spec);

// The factor of this rank's input under kPreMulSum: 1 or 2.
int preMulScalar(const ValueSpec& spec, int rank);

// One element of the type, rounded to nearest even; fp8 saturates. Integers take the low bits.
void storeElement(DataType type, double value, unsigned char* element);
double loadElement(DataType type, const unsigned char* element);

}  // namespace tutti::tools
