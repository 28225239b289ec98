# src/sim: virtual clusters and what calls take. Clusters are described in YAML.
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)

tutti_folder(sim DEPENDS plan)
target_link_libraries(tutti_sim PUBLIC PkgConfig::YAML)
tutti_use_test_data(sim)
if(TARGET test_sim)
  target_compile_definitions(test_sim PRIVATE TUTTI_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
endif()
