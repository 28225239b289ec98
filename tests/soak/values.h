// What the buffers of a call hold before and must hold after it, worked out element by element from
// nccl.h's definitions, with none of the library's code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan.h"

namespace tutti::soak {

size_t sizeOf(ncclDataType_t type);

// An element as its bits, in the low bytes.
uint64_t readElement(const std::byte* at, size_t bytes);
void writeElement(std::byte* at, size_t bytes, uint64_t bits);

// Element `i` of the input of the rank at `place` of `teamSize`. Where values are only moved any
// bits may come; where they are folded, the result is exact in the element's type (but for avg).
uint64_t inputElement(const Call& call, int teamSize, int place, size_t i);
// The scalar of Fold::kPreMulSum.
uint64_t scalarOf(const Call& call, int place);

// How many elements a rank puts in and gets out. No output: the buffer must stay untouched.
size_t inputCount(const Call& call, int teamSize, int place);
size_t outputCount(const Call& call, int teamSize, int place);
// What kExchange carries from one place to another.
size_t exchangeCount(const Call& call, int from, int to);

// Whether `bits` is right as element `i` of the output; what is wanted goes to `wanted`.
bool isRight(const Call& call, int teamSize, int place, size_t i, uint64_t bits, uint64_t& wanted);

}  // namespace tutti::soak
