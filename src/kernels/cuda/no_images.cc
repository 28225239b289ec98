// Stands in for the kernels' images in a build without a CUDA compiler.
#include "kernels/cuda/catalog.h"

#if !defined(TUTTI_GPU_IMAGES)
namespace tutti::kernels::cuda {

std::span<const unsigned char> image(int32_t) { return {}; }
std::span<const unsigned char> stepImage() { return {}; }
std::string_view architectures() { return {}; }

}  // namespace tutti::kernels::cuda
#endif
