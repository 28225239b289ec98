# The rules of the house as tests: layering, seams, sizes and bans; layout; clang-tidy.
find_package(Python3 3.11 COMPONENTS Interpreter REQUIRED)
set(scripts ${CMAKE_CURRENT_SOURCE_DIR}/scripts)

add_test(NAME house.tidy COMMAND Python3::Interpreter ${scripts}/tidy.py)
add_test(NAME house.tidy_test COMMAND Python3::Interpreter ${scripts}/tidy_test.py)
add_test(NAME house.format COMMAND ${scripts}/format.sh --check)
set_tests_properties(house.tidy house.tidy_test house.format PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)

# The described machines are what their script writes.
add_test(NAME golden.topologies
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/golden/topologies/make.py --check)

# Links between the pages lead somewhere.
add_test(NAME house.links COMMAND Python3::Interpreter ${scripts}/check_links.py)
set_tests_properties(house.links PROPERTIES TIMEOUT 60)
