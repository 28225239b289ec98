# NVTX3, headers only: a CUDA toolkit's, the system's, or those of the wheels that install-deps.sh test keeps in
# build/cuda-toolkit. Without them there are no ranges around calls, and nothing else changes.
file(GLOB nvtx_wheels ${CMAKE_CURRENT_SOURCE_DIR}/build/cuda-toolkit/nvidia/*/include)
find_path(TUTTI_NVTX_INCLUDE_DIR nvtx3/nvToolsExtPayload.h
          HINTS ${TUTTI_CUDA_INCLUDE_DIR} PATHS /usr/local/cuda/include ${nvtx_wheels})
if(TUTTI_NVTX_INCLUDE_DIR)
  message(STATUS "NVTX3 (${TUTTI_NVTX_INCLUDE_DIR})")
else()
  message(STATUS "NVTX3's headers (nvtx3/nvToolsExtPayload.h) not found: no ranges for tools such as Nsight Systems")
endif()

function(tutti_use_nvtx)
  if(TUTTI_NVTX_INCLUDE_DIR)
    target_include_directories(tutti_observe SYSTEM PRIVATE ${TUTTI_NVTX_INCLUDE_DIR})
    set_source_files_properties(src/observe/registry.cc PROPERTIES COMPILE_DEFINITIONS TUTTI_NVTX=1)
  else()
    file(GLOB nvtx_sources ${CMAKE_CURRENT_SOURCE_DIR}/src/observe/nvtx/*.cc)
    set_source_files_properties(${nvtx_sources} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()
