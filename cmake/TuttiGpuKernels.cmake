# The GPU kernels: one fatbin for each element type's reductions (integers with and without a sign share one) and one for what only moves bytes, and as many of the
# general executor, embedded into the library and loaded by the driver when first used. Nothing of CUDA's runtime is
# compiled or linked.
set(TUTTI_GPU_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for; the last one also as PTX, for later ones")
option(TUTTI_GPU_KERNELS "Compile the GPU kernels where nvcc is found" OFF)
if(NOT TUTTI_GPU_KERNELS OR NOT TUTTI_CUDA_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  return()
endif()

set(gpu_dir ${CMAKE_CURRENT_SOURCE_DIR}/src/kernels/cuda)
set(gpu_out ${CMAKE_BINARY_DIR}/gpu)
file(MAKE_DIRECTORY ${gpu_out})
file(GLOB gpu_headers CONFIGURE_DEPENDS ${gpu_dir}/*.cuh)
list(APPEND gpu_headers ${CMAKE_CURRENT_SOURCE_DIR}/src/wire/gpu_work.h ${CMAKE_CURRENT_SOURCE_DIR}/src/wire/gpu_program.h
            ${CMAKE_CURRENT_SOURCE_DIR}/src/wire/gpu_fold.h ${CMAKE_CURRENT_SOURCE_DIR}/src/wire/types.h)
set(gpu_flags -std=c++20 -O3 --fatbin --expt-relaxed-constexpr -I${CMAKE_CURRENT_SOURCE_DIR}/src -Xfatbin=-compress-all --compress-mode=size)
foreach(architecture ${TUTTI_GPU_ARCHITECTURES})
  list(APPEND gpu_flags -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET TUTTI_GPU_ARCHITECTURES -1 architecture)
list(APPEND gpu_flags -gencode=arch=compute_${architecture},code=compute_${architecture})

# In the order of DataType, integers without a sign left out: foldImage() of gpu_catalog.h counts on it.
set(gpu_types kInt8 kInt32 kInt64 kFloat16 kFloat32 kFloat64 kBfloat16 kFloat8E4M3 kFloat8E5M2)
set(gpu_images "")
set(gpu_listing "// Generated: the kernels' images, in the order of catalog.h.\n#include \"kernels/cuda/catalog.h\"\n\n")
set(gpu_entries "")

function(tutti_gpu_image source name)
  set(image ${gpu_out}/${name}.fatbin)
  set(headers ${gpu_headers})
  if(NOT source STREQUAL program.cu)
    list(REMOVE_ITEM headers ${gpu_dir}/program.cuh ${gpu_dir}/program_messages.cuh ${CMAKE_CURRENT_SOURCE_DIR}/src/wire/gpu_program.h)
  endif()
  add_custom_command(OUTPUT ${image}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${gpu_flags} ${ARGN} ${gpu_dir}/${source} -o ${image}
    DEPENDS ${gpu_dir}/${source} ${headers}
    COMMENT "Compiling GPU kernels: ${name}" VERBATIM)
  set(symbol tuttiGpuImage_${name})
  string(APPEND gpu_listing "asm(\".section .rodata\\n.balign 16\\n.hidden ${symbol}\\n.hidden ${symbol}End\\n"
         ".globl ${symbol}\\n${symbol}:\\n.incbin \\\"${image}\\\"\\n.globl ${symbol}End\\n${symbol}End:\\n.previous\");\n"
         "extern \"C\" const unsigned char ${symbol}[];\nextern \"C\" const unsigned char ${symbol}End[];\n")
  set(gpu_listing "${gpu_listing}" PARENT_SCOPE)
  set(gpu_entries "${gpu_entries}    {${symbol}, ${symbol}End},\n" PARENT_SCOPE)
  set(gpu_images ${gpu_images} ${image} PARENT_SCOPE)
endfunction()

foreach(type ${gpu_types})
  tutti_gpu_image(fold.cu fold_${type} -DTUTTI_ELEMENT=${type})
endforeach()
tutti_gpu_image(move.cu move)
foreach(type ${gpu_types})
  tutti_gpu_image(program.cu program_${type} -DTUTTI_ELEMENT=${type})
endforeach()
tutti_gpu_image(program.cu program_move)
set(gpu_shared_entries "${gpu_entries}")
tutti_gpu_image(step.cu step)

list(JOIN TUTTI_GPU_ARCHITECTURES " " gpu_architecture_list)
string(APPEND gpu_listing "
namespace tutti::kernels::cuda {

std::span<const unsigned char> image(int32_t which) {
  static const unsigned char* const kImages[kImageCount][2] = {
${gpu_shared_entries}  };
  if (which < 0 || which >= kImageCount) return {};
  return {kImages[which][0], kImages[which][1]};
}

std::span<const unsigned char> stepImage() { return {tuttiGpuImage_step, tuttiGpuImage_stepEnd}; }

std::string_view architectures() { return \"${gpu_architecture_list}\"; }

}  // namespace tutti::kernels::cuda
")
file(CONFIGURE OUTPUT ${gpu_out}/images.cc CONTENT "${gpu_listing}" @ONLY)
set_source_files_properties(${gpu_out}/images.cc PROPERTIES OBJECT_DEPENDS "${gpu_images}")
target_sources(tutti_kernels PRIVATE ${gpu_out}/images.cc)
set_source_files_properties(${gpu_dir}/no_images.cc PROPERTIES COMPILE_DEFINITIONS TUTTI_GPU_IMAGES)

# The kernels alone, checked and timed on a machine with GPUs: bench/gpu. Not part of the default build.
find_library(TUTTI_CUDA_STUB cuda HINTS ${CUDAToolkit_LIBRARY_DIR}/stubs ${CUDAToolkit_LIBRARY_ROOT}/lib64/stubs)
if(TUTTI_CUDA_STUB)
  file(GLOB gpu_bench_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/bench/gpu/*.cc)
  add_executable(gpu_kernels_bench EXCLUDE_FROM_ALL ${gpu_bench_sources})
  target_include_directories(gpu_kernels_bench SYSTEM PRIVATE ${TUTTI_CUDA_INCLUDE_DIR})
  target_link_libraries(gpu_kernels_bench PRIVATE tutti_options tutti_core PkgConfig::SODIUM ${TUTTI_CUDA_STUB})
endif()
