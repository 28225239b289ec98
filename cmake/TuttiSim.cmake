# src/sim: virtual clusters. Described in YAML, so it needs libyaml; without it the command has no `sim`.
pkg_check_modules(YAML QUIET IMPORTED_TARGET yaml-0.1)
if(NOT YAML_FOUND)
  message(STATUS "tutti: libyaml not found (libyaml-dev), so there are no virtual clusters")
  return()
endif()
set(TUTTI_HAS_SIM ON)

tutti_folder(sim DEPENDS plan)
target_link_libraries(tutti_sim PUBLIC PkgConfig::YAML)
tutti_use_test_data(sim)
if(TARGET test_sim)
  target_compile_definitions(test_sim PRIVATE TUTTI_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
endif()
