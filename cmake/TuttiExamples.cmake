# The examples, and a run of each as a test. They see what a user sees: include/ and libnccl.so.2.
if(NOT TARGET nccl)
  return()
endif()
find_package(MPI COMPONENTS C QUIET)
find_path(TUTTI_CUDA_INCLUDE cuda_runtime.h PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include NO_DEFAULT_PATH)
find_path(TUTTI_TOOLKIT_NCCL_INCLUDE NAMES nccl_device.h PATHS ${TUTTI_CUDA_INCLUDE} NO_DEFAULT_PATH)

function(tutti_example name source)
  add_executable(example_${name} ${CMAKE_CURRENT_SOURCE_DIR}/examples/${source})
  target_link_libraries(example_${name} PRIVATE tutti_options nccl ${ARGN})
endfunction()

# CPU ranks everywhere, so that the result does not depend on the GPUs of the machine.
function(tutti_example_test name)
  if(NOT TUTTI_TESTS)
    return()
  endif()
  set(environment TUTTI_DEVICE=host)
  if(name MATCHES "^mpi_")
    list(APPEND environment ASAN_OPTIONS=detect_leaks=0)  # Open MPI and its plug-ins keep what they allocated
  endif()
  add_test(NAME examples.${name} COMMAND ${ARGN})
  set_tests_properties(examples.${name} PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 600)
endfunction()

tutti_example(threads threads.c Threads::Threads)
tutti_example(one_thread one_thread.c)
tutti_example(cpp_raii cpp_raii.cc Threads::Threads)
tutti_example(training_step training_step.c)
foreach(name threads one_thread cpp_raii)
  foreach(ranks 1 4)
    tutti_example_test(${name}_${ranks} example_${name} ${ranks})
  endforeach()
endforeach()

tutti_example_test(training_step example_training_step 4 2 2)

# As root, and with more ranks than cores, because that is how CI machines are.
set(mpirun ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe -n 4)
if(MPI_C_FOUND)
  tutti_example(mpi_allreduce mpi_allreduce.c MPI::MPI_C)
  tutti_example_test(mpi_allreduce ${mpirun} $<TARGET_FILE:example_mpi_allreduce>)
elseif(TUTTI_TESTS)
  add_test(NAME examples.mpi_allreduce COMMAND ${CMAKE_COMMAND} -E echo "skipped: no MPI found")
  set_tests_properties(examples.mpi_allreduce PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()

# The same source built against the CUDA toolkit's own nccl.h, as existing programs were.
if(MPI_C_FOUND AND TUTTI_TOOLKIT_NCCL_INCLUDE AND TUTTI_CUDA_INCLUDE)
  add_executable(example_mpi_allreduce_toolkit_header ${CMAKE_CURRENT_SOURCE_DIR}/examples/mpi_allreduce.c)
  target_include_directories(example_mpi_allreduce_toolkit_header SYSTEM PRIVATE ${TUTTI_TOOLKIT_NCCL_INCLUDE}
                             ${TUTTI_CUDA_INCLUDE})
  # By its file: linking the target would bring our headers in front of the toolkit's.
  target_link_libraries(example_mpi_allreduce_toolkit_header PRIVATE tutti_options MPI::MPI_C $<TARGET_FILE:nccl>)
  add_dependencies(example_mpi_allreduce_toolkit_header nccl)
  set_target_properties(example_mpi_allreduce_toolkit_header PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:nccl>)
  tutti_example_test(mpi_allreduce_toolkit_header ${mpirun} $<TARGET_FILE:example_mpi_allreduce_toolkit_header>)
endif()
