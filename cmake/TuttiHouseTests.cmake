# The rules of the house as tests: layering, seams, sizes and bans; layout; clang-tidy.
find_package(Python3 3.11 COMPONENTS Interpreter REQUIRED)
set(scripts ${CMAKE_CURRENT_SOURCE_DIR}/scripts)

add_test(NAME house.tidy COMMAND Python3::Interpreter ${scripts}/tidy.py)
add_test(NAME house.tidy_test COMMAND Python3::Interpreter ${scripts}/tidy_test.py)
add_test(NAME house.format COMMAND ${scripts}/format.sh --check)
set_tests_properties(house.tidy house.tidy_test house.format PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)

add_test(NAME house.arm64 COMMAND Python3::Interpreter ${scripts}/arm64_compiles.py)
set_tests_properties(house.arm64 PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)

# The described machines are what their script writes.
add_test(NAME golden.topologies
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/golden/topologies/make.py --check)

# Links between the pages lead somewhere.
add_test(NAME house.links COMMAND Python3::Interpreter ${scripts}/check_links.py)
set_tests_properties(house.links PROPERTIES TIMEOUT 600)

# Each error's text has a cause and a cure.
add_test(NAME docs.errors COMMAND Python3::Interpreter ${scripts}/site_errors.py)
set_tests_properties(docs.errors PROPERTIES TIMEOUT 600)

# The commands of the pages run, and the pages make a site.
if(TARGET tutti AND NOT TUTTI_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME docs.commands COMMAND Python3::Interpreter ${scripts}/docs_commands.py $<TARGET_FILE_DIR:tutti>)
  find_program(TUTTI_MKDOCS mkdocs)
  execute_process(COMMAND dpkg-query -W mkdocs-material RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(TUTTI_MKDOCS AND result EQUAL 0)
    add_test(NAME docs.site COMMAND Python3::Interpreter ${scripts}/site.py $<TARGET_FILE:tutti> ${CMAKE_BINARY_DIR}/site)
  else()
    add_test(NAME docs.site COMMAND ${CMAKE_COMMAND} -E echo "skipped: no mkdocs-material found")
    set_tests_properties(docs.site PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
  endif()
  set_tests_properties(docs.commands docs.site PROPERTIES TIMEOUT 900)
endif()
