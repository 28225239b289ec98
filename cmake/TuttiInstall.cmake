# What is installed where. Two layouts of the same files:
#   home    PREFIX/{include,lib,bin,share}: `make install`, the archive; a NCCL_HOME that can be moved
#   system  for deb and rpm, below /: a home of its own in /usr/lib/tutti, so that nothing clashes with
#           NVIDIA's packages, and links, pages and completions where the system looks for them
# Each layout has the components runtime, development and command; `cmake --install` takes home.
include(GNUInstallDirs)
set(TUTTI_SYSTEM_HOME usr/lib/tutti)  # below /
set(package_in ${CMAKE_CURRENT_SOURCE_DIR}/cmake/package)
set(package_out ${CMAKE_BINARY_DIR}/package)

# A pkg-config file: `name` as programs ask for it, the home seen from the file's folder.
function(tutti_pkgconfig out name home)
  set(PC_NAME ${name})
  set(PC_HOME ${home})
  configure_file(${package_in}/library.pc.in ${package_out}/${out} @ONLY)
endfunction()

# A CMake package: config and version file. `prefix` begins its variables and targets.
function(tutti_cmake_package name prefix target version)
  set(CONFIG_PREFIX ${prefix})
  set(CONFIG_TARGET ${target})
  set(CONFIG_VERSION ${version})
  get_target_property(CONFIG_LIBRARY_VERSION nccl VERSION)
  configure_file(${package_in}/Config.cmake.in ${package_out}/cmake/${name}/${name}Config.cmake @ONLY)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${package_out}/cmake/${name}/${name}ConfigVersion.cmake VERSION ${version}
                                   COMPATIBILITY SameMajorVersion)
endfunction()

# The library, its headers and what finds them, under `home`; extra arguments go to every install().
function(tutti_install_home layout home)
  install(TARGETS nccl LIBRARY DESTINATION ${home}lib COMPONENT ${layout}_runtime
          NAMELINK_COMPONENT ${layout}_development ${ARGN})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION ${home}include
          COMPONENT ${layout}_development ${ARGN})
  install(FILES ${package_out}/nccl.pc ${package_out}/tutti.pc DESTINATION ${home}lib/pkgconfig
          COMPONENT ${layout}_development ${ARGN})
  install(DIRECTORY ${package_out}/cmake/ DESTINATION ${home}lib/cmake COMPONENT ${layout}_development ${ARGN})
endfunction()

# Manual pages and completions, where man and the shells look below PREFIX.
function(tutti_install_pages layout share zsh_folder)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man/ DESTINATION ${share}/man COMPONENT ${layout}_command ${ARGN})
  install(FILES ${CMAKE_BINARY_DIR}/share/tutti.bash DESTINATION ${share}/bash-completion/completions RENAME tutti
          COMPONENT ${layout}_command ${ARGN})
  install(FILES ${CMAKE_BINARY_DIR}/share/_tutti DESTINATION ${share}/zsh/${zsh_folder}
          COMPONENT ${layout}_command ${ARGN})
  install(FILES ${CMAKE_BINARY_DIR}/share/tutti.fish DESTINATION ${share}/fish/vendor_completions.d
          COMPONENT ${layout}_command ${ARGN})
endfunction()

if(TARGET nccl)
  get_target_property(library_version nccl VERSION)
  tutti_pkgconfig(nccl.pc nccl "../..")
  tutti_pkgconfig(tutti.pc tutti "../..")
  tutti_pkgconfig(system/tutti.pc tutti "../tutti")
  tutti_cmake_package(NCCL NCCL nccl ${library_version})
  tutti_cmake_package(tutti tutti tutti ${PROJECT_VERSION})
  tutti_install_home(home "")
  tutti_install_home(system ${TUTTI_SYSTEM_HOME}/ EXCLUDE_FROM_ALL)
  install(FILES ${package_out}/system/tutti.pc DESTINATION usr/lib/pkgconfig COMPONENT system_development EXCLUDE_FROM_ALL)
  file(MAKE_DIRECTORY ${package_out}/system/cmake)
  file(CREATE_LINK ../tutti/lib/cmake/tutti ${package_out}/system/cmake/tutti SYMBOLIC)
  install(FILES ${package_out}/system/cmake/tutti DESTINATION usr/lib/cmake COMPONENT system_development EXCLUDE_FROM_ALL)
  install(FILES ${package_in}/ld.so.conf.first ${package_in}/ld.so.conf.last DESTINATION ${TUTTI_SYSTEM_HOME}
          COMPONENT system_runtime EXCLUDE_FROM_ALL)
  install(FILES ${package_in}/zz-tutti-nccl.conf DESTINATION etc/ld.so.conf.d
          COMPONENT system_runtime EXCLUDE_FROM_ALL)
endif()

if(TARGET tutti)
  install(TARGETS tutti RUNTIME DESTINATION bin COMPONENT home_command)
  install(TARGETS tutti RUNTIME DESTINATION ${TUTTI_SYSTEM_HOME}/bin COMPONENT system_command EXCLUDE_FROM_ALL)
  file(MAKE_DIRECTORY ${package_out}/system/bin)
  file(CREATE_LINK ../lib/tutti/bin/tutti ${package_out}/system/bin/tutti SYMBOLIC)
  install(FILES ${package_out}/system/bin/tutti DESTINATION usr/bin COMPONENT system_command EXCLUDE_FROM_ALL)

  # The pages are what the command says of itself, so they need a command that runs here.
  if(NOT CMAKE_CROSSCOMPILING)
    set(pages ${CMAKE_BINARY_DIR}/share)
    find_program(TUTTI_GZIP gzip)
    add_custom_command(OUTPUT ${pages}/tutti.bash
      COMMAND ${CMAKE_COMMAND} -DCOMMAND=$<TARGET_FILE:tutti> -DOUT=${pages} -DGZIP=$<$<BOOL:${TUTTI_GZIP}>:${TUTTI_GZIP}> -P ${package_in}/pages.cmake
      DEPENDS tutti ${package_in}/pages.cmake COMMENT "Writing manual pages and completions" VERBATIM)
    add_custom_target(pages ALL DEPENDS ${pages}/tutti.bash)
    tutti_install_pages(home share site-functions)
    tutti_install_pages(system usr/share vendor-completions EXCLUDE_FROM_ALL)
  endif()
endif()
include(TuttiPackages)
