# libnccl.so.2: the interface layer over the core, with nothing visible but what exports.map names, and nothing needed
# but what every Linux has: so the one file can be copied and preloaded.
file(GLOB TUTTI_API_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/api/*.cc)
set(TUTTI_API_TESTS ${TUTTI_API_SOURCES})
list(FILTER TUTTI_API_TESTS INCLUDE REGEX "_test\\.cc$")
list(FILTER TUTTI_API_SOURCES EXCLUDE REGEX "_(test|fuzz|bench)\\.cc$")
if(NOT TUTTI_API_SOURCES)
  return()
endif()

add_library(nccl SHARED ${TUTTI_API_SOURCES})
add_library(tutti::nccl ALIAS nccl)
set_target_properties(nccl PROPERTIES VERSION 2.28.9 SOVERSION 2
                      LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/api/exports.map)
target_include_directories(nccl PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                           PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src ${fmt_INCLUDE_DIR})
target_link_libraries(nccl PRIVATE tutti_options $<BUILD_INTERFACE:tutti_core>)
# The interface's types, for debuggers and for the comparison with the last release's; what is installed is stripped.
target_compile_options(nccl PRIVATE -g)

# tutti_link_archive(name package folders...): a library goes in as an archive, so that ours does not need it where it runs.
function(tutti_link_archive name package)
  find_library(TUTTI_${package}_ARCHIVE NAMES lib${name}.a HINTS ${ARGN})
  if(TUTTI_${package}_ARCHIVE)
    target_link_libraries(nccl PRIVATE $<BUILD_INTERFACE:${TUTTI_${package}_ARCHIVE}>)
  else()
    message(STATUS "lib${name}.a not found: libnccl.so.2 will need lib${name}'s shared library where it runs")
    target_link_libraries(nccl PRIVATE $<BUILD_INTERFACE:PkgConfig::${package}>)
  endif()
endfunction()
tutti_link_archive(sodium SODIUM ${SODIUM_LIBRARY_DIRS} ${SODIUM_LIBDIR})
tutti_link_archive(pugixml PUGIXML)  # reads topology files
tutti_link_archive(yaml YAML ${YAML_LIBRARY_DIRS} ${YAML_LIBDIR})  # reads files of virtual clusters

# Its threads outlive a dlclose: nodelete keeps the code they run.
target_link_options(nccl PRIVATE LINKER:-z,nodelete)
# The names of archives stay inside even where exports.map's patterns would let one out.
target_link_options(nccl PRIVATE
  LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/src/api/exports.map LINKER:--exclude-libs,ALL LINKER:--as-needed
  LINKER:--gc-sections LINKER:-z,relro LINKER:-z,now)
if(NOT TUTTI_SANITIZE)  # a sanitizer's names come from the program that loads the library
  target_link_options(nccl PRIVATE LINKER:-z,defs)
endif()

# Tests of the interface layer see what a program sees: the library, not the objects.
if(TUTTI_API_TESTS AND TUTTI_TESTS)
  add_executable(test_api ${TUTTI_API_TESTS})
  target_link_libraries(test_api PRIVATE tutti_options nccl GTest::gtest_main GTest::gmock)
  gtest_discover_tests(test_api DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES TEST_PREFIX "api." PROPERTIES TIMEOUT 300)
endif()
