# What `make install` puts under PREFIX: the library under its three names, the headers, the command.
include(GNUInstallDirs)
if(TARGET nccl)
  install(TARGETS nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET tutti)
  install(TARGETS tutti RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
