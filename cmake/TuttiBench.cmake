# Micro benchmarks: src/**/*_bench.cc and bench/micro/*.cc make one program; `run_bench` runs it.
add_custom_target(bench)
file(GLOB_RECURSE bench_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/*_bench.cc
     ${CMAKE_CURRENT_SOURCE_DIR}/bench/micro/*.cc)
if(bench_sources)
  find_package(benchmark REQUIRED)
  add_executable(bench_micro ${bench_sources})
  target_link_libraries(bench_micro PRIVATE tutti_options tutti_core PkgConfig::SODIUM PkgConfig::PUGIXML
                        benchmark::benchmark_main)
  target_compile_definitions(bench_micro PRIVATE TUTTI_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
  add_dependencies(bench bench_micro)
  add_custom_target(run_bench COMMAND bench_micro --benchmark_min_time=0.1 USES_TERMINAL VERBATIM)
else()
  add_custom_target(run_bench COMMAND ${CMAKE_COMMAND} -E echo "There are no micro benchmarks yet")
endif()
