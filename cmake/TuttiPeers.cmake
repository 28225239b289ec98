# bench/peers builds its programs itself, with each library's own compiler; CMake only tests it.
if(TUTTI_TESTS AND NOT TUTTI_SANITIZE)
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND AND TARGET nccl)
    add_test(NAME bench.peers COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/bench/peers/peers_test.py)
    set_tests_properties(bench.peers PROPERTIES TIMEOUT 600 ENVIRONMENT "PEERS_TEST_LIBRARY=$<TARGET_FILE_DIR:nccl>")
  endif()
endif()
