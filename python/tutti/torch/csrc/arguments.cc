#include "arguments.h"

#include <stdexcept>
#include <string>

namespace tutti::pytorch {

const at::Tensor& single(const char* what, const Tensors& tensors) {
  if (tensors.size() != 1) {
    throw std::invalid_argument(std::string(what) + " are " + std::to_string(tensors.size()) +
                                " tensors: wanted one, as a rank is one process");
  }
  return tensors.front();
}

at::Tensor flatLike(const at::Tensor& model, int64_t count) {
  return at::empty({count}, model.options());
}

void checkCount(const char* what, size_t seen, int wanted) {
  if (seen == static_cast<size_t>(wanted)) return;
  throw std::invalid_argument(std::string(what) + " are " + std::to_string(seen) +
                              ": wanted one for each of the " + std::to_string(wanted) + " ranks");
}

void checkSize(const char* what, int64_t seen, int64_t wanted) {
  if (seen == wanted) return;
  throw std::invalid_argument(std::string("invalid tensor size: ") + what + " has " +
                              std::to_string(seen) + " elements, wanted " + std::to_string(wanted));
}

Tensors splitOf(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                int ranks) {
  if (!tensor.is_contiguous())
    throw std::invalid_argument(std::string(what) + " is not contiguous");
  const int64_t length = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<int64_t> all = sizes;
  if (all.empty()) {
    if (length % ranks != 0) {
      throw std::invalid_argument(std::string(what) + "'s dimension 0, " + std::to_string(length) +
                                  ", does not divide equally across group size " +
                                  std::to_string(ranks));
    }
    all.assign(static_cast<size_t>(ranks), length / ranks);
  }
  checkCount("split sizes", all.size(), ranks);
  int64_t sum = 0;
  for (const int64_t size : all) sum += size;
  if (sum != length) {
    throw std::invalid_argument(std::string("Split sizes of ") + what + " sum up to " +
                                std::to_string(sum) + ": they don't match total dim 0 size " +
                                std::to_string(length));
  }
  Tensors parts;
  int64_t at = 0;
  for (const int64_t size : all) {
    parts.push_back(tensor.dim() == 0 ? tensor : tensor.narrow(0, at, size));
    at += size;
  }
  return parts;
}

}  // namespace tutti::pytorch
