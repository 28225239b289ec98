// What a call was given, checked before anything is sent. All throw std::invalid_argument with what
// was seen and wanted.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace tutti::pytorch {

using Tensors = std::vector<at::Tensor>;

// torch's interface takes a tensor for each of a process's devices, which is one.
const at::Tensor& single(const char* what, const Tensors& tensors);
void checkCount(const char* what, size_t seen, int wanted);
void checkSize(const char* what, int64_t seen, int64_t wanted);
// Parts of dimension 0 of `tensor`, which is contiguous; without sizes, equal ones.
Tensors splitOf(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                int ranks);

at::Tensor flatLike(const at::Tensor& model, int64_t count);

}  // namespace tutti::pytorch
