# Tests that are not a folder's *_test.cc: one include a kind.
include(TuttiHouseTests)
add_subdirectory(tests/abi)
if(TARGET nccl)
  add_subdirectory(tests/conformance)
endif()
add_subdirectory(tests/multiproc)
add_subdirectory(tests/faults)
add_subdirectory(tests/soak)
