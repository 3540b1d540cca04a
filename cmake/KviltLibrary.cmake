# The one library that users link, made of the rooms' objects, and the package it installs as:
# find_package(kvilt) gives kvilt::kvilt, static or shared as BUILD_SHARED_LIBS said.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(KVILT_LIBRARY_ROOMS core plan cpu cuda pool api)
list(TRANSFORM KVILT_LIBRARY_ROOMS PREPEND kvilt_ OUTPUT_VARIABLE KVILT_ROOM_TARGETS)

add_library(kvilt)
add_library(kvilt::kvilt ALIAS kvilt)
foreach(room IN LISTS KVILT_ROOM_TARGETS)
  target_sources(kvilt PRIVATE $<TARGET_OBJECTS:${room}>)
endforeach()
set_target_properties(kvilt PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                       LINKER_LANGUAGE CXX)
target_compile_features(kvilt PUBLIC cxx_std_20)
target_include_directories(kvilt PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(KVILT_SANITIZE)
  target_link_options(kvilt PUBLIC $<BUILD_INTERFACE:-fsanitize=${KVILT_SANITIZE}>)
endif()

# A shared library has resolved what it uses, so its users need none of it; a static one hands its
# dependencies on (kvilt-config.cmake finds them).
set(KVILT_PRIVATE_LIBRARIES hwy::hwy fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
if(BUILD_SHARED_LIBS)
  foreach(library IN LISTS KVILT_PRIVATE_LIBRARIES)
    target_link_libraries(kvilt PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  # Only the public API is exported: names directly in namespace kvilt, and the C functions.
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(kvilt PRIVATE LINKER:--version-script=${exports})
  set_target_properties(kvilt PROPERTIES LINK_DEPENDS ${exports})
  # For programs of this tree that use rooms behind the API (the kvilt command).
  add_library(kvilt_inside STATIC)
  target_link_libraries(kvilt_inside PRIVATE ${KVILT_PRIVATE_LIBRARIES})
  get_target_property(objects kvilt SOURCES)
  target_sources(kvilt_inside PRIVATE ${objects})
  set_target_properties(kvilt_inside PROPERTIES LINKER_LANGUAGE CXX)
else()
  target_link_libraries(kvilt PRIVATE ${KVILT_PRIVATE_LIBRARIES})
  add_library(kvilt_inside ALIAS kvilt)
endif()

install(TARGETS kvilt EXPORT kvilt-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvilt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvilt)
install(EXPORT kvilt-targets NAMESPACE kvilt:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kvilt-config.cmake.in
  ${PROJECT_BINARY_DIR}/kvilt-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvilt-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvilt-config.cmake
              ${PROJECT_BINARY_DIR}/kvilt-config-version.cmake DESTINATION ${package_dir})
