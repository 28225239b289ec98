# The Python package: staged under the build folder with the library and the command in it, as the wheel holds them
# (component `python`, which python/pyproject.toml installs), and its tests.
if(NOT TARGET nccl OR NOT TARGET tutti)
  return()
endif()
set(python_source ${CMAKE_CURRENT_SOURCE_DIR}/python)
set(python_stage ${CMAKE_BINARY_DIR}/python)
install(DIRECTORY ${python_source}/tutti/ DESTINATION tutti COMPONENT python EXCLUDE_FROM_ALL
        PATTERN __pycache__ EXCLUDE)
# A wheel holds no links: the library goes in under the name by which it is loaded.
install(FILES $<TARGET_FILE:nccl> DESTINATION tutti/lib RENAME libnccl.so.2 COMPONENT python EXCLUDE_FROM_ALL)
if(CMAKE_STRIP)  # what --strip does not do for a renamed file
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/tutti/lib/libnccl.so.2\")"
          COMPONENT python EXCLUDE_FROM_ALL)
endif()
install(TARGETS tutti RUNTIME DESTINATION tutti/bin COMPONENT python EXCLUDE_FROM_ALL)
# What tutti.torch is compiled against, where it is used.
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include DESTINATION tutti COMPONENT python EXCLUDE_FROM_ALL)

# Tests want a Python that has these modules: the one of the build, or else the system's. Empty: there is none.
if(NOT TUTTI_TESTS OR TUTTI_SANITIZE OR CMAKE_CROSSCOMPILING)
  return()
endif()
function(tutti_python_with variable)
  list(JOIN ARGN "," names)
  foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import importlib.util as u; exit(not all(map(u.find_spec, '${names}'.split(','))))"
                    RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(${variable} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${variable} "" PARENT_SCOPE)
endfunction()

tutti_python_with(python_with_numpy numpy pytest)
if(python_with_numpy)
  file(MAKE_DIRECTORY ${python_stage}/tutti/lib ${python_stage}/tutti/bin)
  add_custom_target(python_stage ALL
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${python_source}/tutti ${python_stage}/tutti
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:nccl> ${python_stage}/tutti/lib/libnccl.so.2
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:tutti> ${python_stage}/tutti/bin/tutti
    COMMAND ${CMAKE_COMMAND} -E create_symlink ${CMAKE_CURRENT_SOURCE_DIR}/include ${python_stage}/tutti/include
    COMMENT "Staging the Python package" VERBATIM)
  add_dependencies(python_stage nccl tutti)
  add_test(NAME python.package COMMAND ${python_with_numpy} -m pytest -q ${python_source}/tests
           --ignore=${python_source}/tests/test_torch.py)
  set_tests_properties(python.package PROPERTIES TIMEOUT 900
    ENVIRONMENT "PYTHONPATH=${python_stage};PYTHONDONTWRITEBYTECODE=1;TUTTI_DEVICE=host")
else()
  add_test(NAME python.package COMMAND ${CMAKE_COMMAND} -E echo "skipped: no Python with numpy and pytest found")
  set_tests_properties(python.package PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()

# What the annotations promise to callers' type checkers holds within the package.
find_program(TUTTI_MYPY mypy)
if(TUTTI_MYPY)
  add_test(NAME python.types COMMAND ${TUTTI_MYPY} --ignore-missing-imports --exclude torch --cache-dir ${CMAKE_BINARY_DIR}/mypy tutti
           WORKING_DIRECTORY ${python_source})
  set_tests_properties(python.types PROPERTIES TIMEOUT 600)
else()
  add_test(NAME python.types COMMAND ${CMAKE_COMMAND} -E echo "skipped: no mypy found")
  set_tests_properties(python.types PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()

# The backend for torch.distributed: with a Python that has torch, too. It is compiled by its first test.
tutti_python_with(python_with_torch torch numpy pytest)
if(python_with_torch AND python_with_numpy)
  add_test(NAME python.torch COMMAND ${python_with_torch} -m pytest -q ${python_source}/tests/test_torch.py)
  add_test(NAME examples.train_torch COMMAND ${python_with_torch} -m tutti run -n 4
           ${CMAKE_CURRENT_SOURCE_DIR}/examples/train_torch.py)
  add_test(NAME python.vllm_calls COMMAND ${python_with_torch} ${CMAKE_CURRENT_SOURCE_DIR}/tests/gpu/vllm_check.py --ranks 4
           --lib $<TARGET_FILE:nccl> --device cpu)
  set_tests_properties(python.torch python.vllm_calls examples.train_torch PROPERTIES TIMEOUT 900 PROCESSORS 2 RESOURCE_LOCK torch_cache
    ENVIRONMENT "CUDA_VISIBLE_DEVICES=;PYTHONPATH=${python_stage};PYTHONDONTWRITEBYTECODE=1;TUTTI_DEVICE=host;OMP_NUM_THREADS=1;TUTTI_TORCH_CACHE=${CMAKE_BINARY_DIR}/torch-cache")
else()
  add_test(NAME python.torch COMMAND ${CMAKE_COMMAND} -E echo "skipped: no Python with torch and pytest found")
  set_tests_properties(python.torch PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()

# The blocks of Python in the pages run.
if(python_with_numpy)
  add_test(NAME docs.python COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/scripts/docs_commands.py --python
           ${python_with_numpy} ${python_with_torch})
  set_tests_properties(docs.python PROPERTIES TIMEOUT 900 RESOURCE_LOCK torch_cache
    ENVIRONMENT "PYTHONPATH=${python_stage};PYTHONDONTWRITEBYTECODE=1;TUTTI_DEVICE=host;OMP_NUM_THREADS=1;TUTTI_TORCH_CACHE=${CMAKE_BINARY_DIR}/torch-cache")
else()
  add_test(NAME docs.python COMMAND ${CMAKE_COMMAND} -E echo "skipped: no Python with numpy found")
  set_tests_properties(docs.python PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()

# An MPI program that hands over to the package.
find_program(TUTTI_MPIRUN NAMES mpirun)
tutti_python_with(python_with_mpi mpi4py numpy)
if(python_with_numpy AND TUTTI_MPIRUN AND python_with_mpi)
  add_test(NAME examples.mpi_handoff COMMAND ${TUTTI_MPIRUN} --allow-run-as-root --oversubscribe -n 4 ${python_with_mpi}
           ${CMAKE_CURRENT_SOURCE_DIR}/examples/mpi_handoff.py)
  set_tests_properties(examples.mpi_handoff PROPERTIES TIMEOUT 600
    ENVIRONMENT "PYTHONPATH=${python_stage};PYTHONDONTWRITEBYTECODE=1;TUTTI_DEVICE=host")
else()
  add_test(NAME examples.mpi_handoff COMMAND ${CMAKE_COMMAND} -E echo "skipped: no mpirun, mpi4py and NumPy found")
  set_tests_properties(examples.mpi_handoff PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
endif()
