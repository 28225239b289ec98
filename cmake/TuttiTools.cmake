# The `tutti` command, made of tools/*.cc, its tests in tests/tools/, and the examples.
find_package(CLI11 QUIET)
find_package(nlohmann_json QUIET)
pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc)

if(CLI11_FOUND AND nlohmann_json_FOUND)
  set(TUTTI_TOOLS_ROOT ${CMAKE_CURRENT_SOURCE_DIR}/tools)
  file(GLOB sources CONFIGURE_DEPENDS ${TUTTI_TOOLS_ROOT}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench)\\.cc$")

  # `perf` calls the library by its C interface; the other subcommands do without the library.
  if(NOT TARGET nccl)
    list(FILTER sources EXCLUDE REGEX "/(perf|tune)[^/]*\\.cc$")
  endif()
  set(commands "")
  foreach(command perf run explain sim doctor settings topo trace tune why version)
    list(FIND sources ${TUTTI_TOOLS_ROOT}/${command}.cc found)
    if(NOT found EQUAL -1)
      string(TOUPPER ${command} upper)
      list(APPEND commands TUTTI_HAS_${upper}=1)
    endif()
  endforeach()

  add_executable(tutti ${sources})
  target_include_directories(tutti PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include
                             ${fmt_INCLUDE_DIR})
  # Settings, log, devices and the choice of network come from the folders themselves, so the command works without the library too.
  tutti_use_folders(tutti bootstrap)
  tutti_use_folders(tutti device)
  tutti_use_folders(tutti kernels)
  tutti_use_folders(tutti net)
  tutti_use_folders(tutti observe)
  tutti_use_folders(tutti plan)
  tutti_use_folders(tutti topology)
  tutti_use_folders(tutti sim)
  target_link_libraries(tutti PRIVATE tutti_options CLI11::CLI11 nlohmann_json::nlohmann_json)
  target_compile_definitions(tutti PRIVATE ${commands} TUTTI_BUILD_TYPE="${CMAKE_BUILD_TYPE}"
                             TUTTI_SANITIZERS="${TUTTI_SANITIZE}")
  if(TARGET nccl)
    # `tune` forces algorithms by communicator, which the C interface cannot.
    tutti_use_folders(tutti group)
    target_link_libraries(tutti PRIVATE nccl)
  endif()
  if(HWLOC_FOUND)
    target_link_libraries(tutti PRIVATE PkgConfig::HWLOC)
    target_compile_definitions(tutti PRIVATE TUTTI_HAS_HWLOC=1)
  endif()
  # Beside the library both in the build folder (bin/, lib/) and where it is installed.
  set_target_properties(tutti PROPERTIES BUILD_RPATH "$ORIGIN/../lib"
                        INSTALL_RPATH "$ORIGIN/../lib")
  # Before LD_LIBRARY_PATH, which may lead to NVIDIA's library: that lacks what the command calls, and it would not start.
  target_link_options(tutti PRIVATE LINKER:--disable-new-dtags)

  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(TUTTI_TESTS AND Python3_FOUND)
    foreach(topic command doctor explain)
      add_test(NAME tools.${topic}
               COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/tools/${topic}_test.py
                       $<TARGET_FILE:tutti> ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_VERSION})
    endforeach()
    add_test(NAME tools.topo
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/tools/topo_test.py
                     $<TARGET_FILE:tutti> ${CMAKE_CURRENT_SOURCE_DIR} "${TUTTI_SANITIZE}")
    add_test(NAME tools.sim
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/tools/sim_test.py
                     $<TARGET_FILE:tutti> ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME tools.trace
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/tools/trace_test.py
                     $<TARGET_FILE:tutti> ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME tools.files
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tests/tools/files_test.py
                     $<TARGET_FILE:tutti> ${CMAKE_CURRENT_SOURCE_DIR} "${TUTTI_SANITIZE}")
    set_tests_properties(tools.command tools.doctor tools.explain tools.files tools.sim tools.topo tools.trace PROPERTIES TIMEOUT 600)
  endif()
else()
  message(STATUS "tutti: no CLI11 or nlohmann-json found, so the tutti command is not built")
endif()

include(TuttiExamples OPTIONAL)
