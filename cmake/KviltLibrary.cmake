# The one library that users link, made of the rooms' objects, and its install rules.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(KVILT_LIBRARY_ROOMS core plan cpu pool api)
add_library(kvilt)
add_library(kvilt::kvilt ALIAS kvilt)
foreach(room IN LISTS KVILT_LIBRARY_ROOMS)
  if(TARGET kvilt_${room})
    target_sources(kvilt PRIVATE $<TARGET_OBJECTS:kvilt_${room}>)
  endif()
endforeach()
set_target_properties(kvilt PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                       LINKER_LANGUAGE CXX)
target_compile_features(kvilt PUBLIC cxx_std_20)
target_include_directories(kvilt PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(kvilt PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:hwy::hwy> $<BUILD_INTERFACE:fmt::fmt>)
