# Rooms and their tests.
#
# kvilt_room(name SOURCES a.cc ... [LINK targets])       an object library kvilt_<name>
# kvilt_test(name SOURCES a_test.cc ... ROOMS core ...   a GoogleTest program registered with ctest
#            [LINK targets] [LABELS labels])      each label has a target kvilt_tests_<label>

add_library(kvilt_flags INTERFACE)
target_include_directories(kvilt_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
# -ffp-contract=off: the formats demand separately rounded operations; kernels that want FMA say so.
target_compile_options(kvilt_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror=return-type -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: "text" + std::string() is said to overlap itself.
  target_compile_options(kvilt_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Unroll hints are for g++; clang++ reports those that it could not follow.
  target_compile_options(kvilt_flags INTERFACE -Wno-pass-failed)
endif()
if(KVILT_SANITIZE)
  target_compile_options(kvilt_flags INTERFACE
    -fsanitize=${KVILT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(kvilt_flags INTERFACE -fsanitize=${KVILT_SANITIZE})
endif()

function(kvilt_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(kvilt_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(kvilt_${name} PUBLIC kvilt_flags Threads::Threads ${ARG_LINK})
endfunction()

function(kvilt_test name)
  if(NOT KVILT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  foreach(room IN LISTS ARG_ROOMS)
    target_link_libraries(${name} PRIVATE kvilt_${room})
  endforeach()
  target_link_libraries(${name} PRIVATE kvilt_flags ${ARG_LINK} GTest::gtest GTest::gtest_main rapidcheck)
  add_test(NAME ${name} COMMAND ${name})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET kvilt_tests_${label})
      add_custom_target(kvilt_tests_${label})
    endif()
    add_dependencies(kvilt_tests_${label} ${name})
  endforeach()
endfunction()
