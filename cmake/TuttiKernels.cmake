# The CPU folds are compiled once for each processor level, from one set of templates; the fastest
# that the processor supports is chosen at run time. All levels must give the same bits.
set(fold_dir ${CMAKE_CURRENT_SOURCE_DIR}/src/kernels/cpu)

# -ffp-contract=off: a fused multiply-add rounds once where the other levels round twice.
# -fno-trapping-math: selects between two computed values need not preserve exception flags, so
# they vectorise.
set(fold_options -ffp-contract=off -fno-trapping-math -fno-math-errno $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-O3>)

set_source_files_properties(${fold_dir}/fold_baseline.cc PROPERTIES COMPILE_OPTIONS "${fold_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${fold_dir}/fold_avx2.cc PROPERTIES
    COMPILE_OPTIONS "${fold_options};-mavx2;-mf16c")
  set_source_files_properties(${fold_dir}/fold_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${fold_options};-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
else()
  set_source_files_properties(${fold_dir}/fold_avx2.cc ${fold_dir}/fold_avx512.cc PROPERTIES
    HEADER_FILE_ONLY ON)
endif()
