# `make package`: deb and rpm (as far as the machine can build them) and an archive that can be unpacked anywhere.
# Which components go into which kind of package is said in package/PerGenerator.cmake.
if(NOT TARGET nccl OR NOT TARGET tutti OR CMAKE_CROSSCOMPILING)
  return()
endif()
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR tutti)
set(CPACK_PACKAGE_CONTACT "The tutti maintainers <maintainers@tutti.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Collective communication between GPUs and CPU ranks")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${package_in}/PerGenerator.cmake)

set(CPACK_GENERATOR TGZ)
find_program(TUTTI_DPKG_DEB dpkg-deb)
find_program(TUTTI_DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(TUTTI_RPMBUILD rpmbuild)
if(TUTTI_DPKG_DEB AND TUTTI_DPKG_SHLIBDEPS AND TUTTI_GZIP)
  list(APPEND CPACK_GENERATOR DEB)
endif()
if(TUTTI_RPMBUILD)
  list(APPEND CPACK_GENERATOR RPM)
endif()

string(TIMESTAMP PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH's, if set
# tutti_package(component deb rpm summary description): one deb and one rpm; Debian also wants licence and changes in it.
macro(tutti_package component deb rpm summary description)
  string(TOUPPER system_${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${deb})
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${rpm})
  set(CPACK_RPM_${upper}_PACKAGE_SUMMARY "${summary}")
  set(CPACK_RPM_${upper}_PACKAGE_DESCRIPTION "${description}")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${description}")
  set(CPACK_RPM_${upper}_FILE_NAME RPM-DEFAULT)
  set(PACKAGE_NAME ${deb})
  configure_file(${package_in}/changelog.in ${package_out}/${deb}/changelog @ONLY)
  if(TUTTI_GZIP)
    execute_process(COMMAND ${TUTTI_GZIP} -9nf ${package_out}/${deb}/changelog)
    install(FILES ${package_out}/${deb}/changelog.gz DESTINATION usr/share/doc/${deb}
            COMPONENT system_${component} EXCLUDE_FROM_ALL)
  endif()
  install(FILES ${package_in}/copyright DESTINATION usr/share/doc/${deb} COMPONENT system_${component} EXCLUDE_FROM_ALL)
endmacro()

tutti_package(runtime libtutti-nccl2 libtutti-nccl "Collective communication with NCCL's interface: the library"
  "libnccl.so.2 in a folder of its own, beside any other of that name;\nupdate-alternatives (tutti-nccl) says which comes first.")
tutti_package(development libtutti-dev libtutti-devel "Collective communication with NCCL's interface: headers"
  "Headers, pkg-config files and CMake packages, for programs that call tutti.\nNCCL_HOME is /usr/lib/tutti.")
tutti_package(command tutti tutti "Collective communication between GPUs and CPU ranks: the command"
  "Measures collectives, starts ranks, says what a machine would use,\nand why a program hangs.")

# deb
install(FILES ${package_in}/lintian-overrides DESTINATION usr/share/lintian/overrides RENAME libtutti-nccl2
        COMPONENT system_runtime EXCLUDE_FROM_ALL)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_SYSTEM_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_SYSTEM_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_SYSTEM_COMMAND_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_SYSTEM_DEVELOPMENT_PACKAGE_DEPENDS "libtutti-nccl2 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SYSTEM_COMMAND_PACKAGE_DEPENDS "libtutti-nccl2 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SYSTEM_RUNTIME_PACKAGE_CONTROL_EXTRA ${package_in}/postinst ${package_in}/prerm
    ${package_in}/triggers ${package_in}/conffiles)
set(CPACK_DEBIAN_SYSTEM_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# rpm
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_GROUP Development/Libraries)
set(CPACK_RPM_SYSTEM_DEVELOPMENT_PACKAGE_REQUIRES "libtutti-nccl = ${PROJECT_VERSION}")
set(CPACK_RPM_SYSTEM_COMMAND_PACKAGE_REQUIRES "libtutti-nccl = ${PROJECT_VERSION}")
# Nobody else's dependency on libnccl.so.2 may be met by a library that stands outside the default path.
set(CPACK_RPM_PACKAGE_AUTOREQPROV " yes")
set(CPACK_RPM_SPEC_MORE_DEFINE "%define __provides_exclude ^libnccl[.]so.*$
%define __requires_exclude ^libnccl[.]so.*$
%define _build_id_links none")
set(CPACK_RPM_SYSTEM_RUNTIME_POST_INSTALL_SCRIPT_FILE ${package_in}/rpm_post.sh)
set(CPACK_RPM_SYSTEM_RUNTIME_PRE_UNINSTALL_SCRIPT_FILE ${package_in}/rpm_preun.sh)
set(CPACK_RPM_SYSTEM_RUNTIME_POST_UNINSTALL_SCRIPT_FILE ${package_in}/rpm_postun.sh)
set(CPACK_RPM_SYSTEM_RUNTIME_USER_FILELIST "%config /etc/ld.so.conf.d/zz-tutti-nccl.conf")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /etc /etc/ld.so.conf.d /usr/lib/pkgconfig /usr/lib/cmake /usr/share/zsh
    /usr/share/zsh/vendor-completions /usr/share/fish /usr/share/fish/vendor_completions.d /usr/share/bash-completion
    /usr/share/bash-completion/completions)
include(CPack)
