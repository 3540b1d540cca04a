# cmake -D build= -D source= -D work= -D inside= ... -P install_test.cmake
#   build   Kvilt's build folder            source  the example's folder
#   work    a folder to fill                inside  the example, built in Kvilt's own build
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed (${code}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

get_filename_component(name ${source} NAME)
file(REMOVE_RECURSE ${work})
run("install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)
if(NOT EXISTS ${work}/prefix/share/doc/kvilt/LICENSE)
  message(FATAL_ERROR "no LICENSE in the installed package")
endif()
run("configure" ${CMAKE_COMMAND} -S ${source} -B ${work}/build -G ${generator}
  -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_C_COMPILER=${c_compiler}
  -D CMAKE_EXE_LINKER_FLAGS=${link_flags} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF --no-warn-unused-cli)
file(STRINGS ${work}/build/CMakeCache.txt found REGEX "^kvilt_DIR:")
if(NOT found MATCHES "=${work}/prefix/")
  message(FATAL_ERROR "another kvilt was found: ${found}")
endif()
run("build" ${CMAKE_COMMAND} --build ${work}/build)
run("the example outside" ${work}/build/${name})
set(outside "${output}")
run("the example inside" ${inside})
if(NOT outside STREQUAL output OR outside STREQUAL "")
  message(FATAL_ERROR "the outputs differ.\n--- outside\n${outside}\n--- inside\n${output}")
endif()
message(STATUS "both print:\n${output}")
