// Stands in for the kernels' images, so that GPU ranks take the way of kernels on a driver that
// runs none.
#include "kernels/gpu_catalog.h"

namespace tutti::kernels::cuda {
namespace {

constexpr unsigned char kBytes[kImageCount + 1] = {};

}  // namespace

std::span<const unsigned char> image(int32_t which) { return {&kBytes[which], 1}; }
std::span<const unsigned char> stepImage() { return {&kBytes[kImageCount], 1}; }
std::string_view architectures() { return "80 90"; }

}  // namespace tutti::kernels::cuda
