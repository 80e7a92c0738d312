# fractus-python.so, which brings Python into the worker for candidates that are Python functions: built on demand, from
# the headers of the Python that .venv was made with. Its stand-ins for CUDA's libraries are described in cuda_stubs.py.
cmake_path(GET FRACTUS_TORCH PARENT_PATH FRACTUS_VENV) # not by way of `..`: torch's folder may be a link
set(FRACTUS_VENV_PYTHON ${FRACTUS_VENV}/bin/python)
execute_process(
  COMMAND ${FRACTUS_VENV_PYTHON} -I -c "import sysconfig as s; v = s.get_config_var; print(v('INCLUDEPY'), v('LIBDIR') + '/' + v('INSTSONAME'), sep=';', end='')"
  OUTPUT_VARIABLE python_paths RESULT_VARIABLE python_status ERROR_QUIET)
if(NOT python_status EQUAL 0)
  message(WARNING "no candidates in Python: ${FRACTUS_VENV_PYTHON} does not run")
  return()
endif()
list(GET python_paths 0 python_include)
list(GET python_paths 1 python_library)
if(NOT EXISTS ${python_include}/Python.h OR NOT EXISTS ${python_library})
  # A target that fails with the reason, so that all else builds.
  add_custom_target(fractus-python COMMAND ${CMAKE_COMMAND} -E echo
    "candidates in Python need the headers and the shared library of the Python that .venv was made with, and ${python_include}/Python.h or ${python_library} is absent. Install them (Debian: python3-dev), or remove .venv and name another Python: FRACTUS_PYTHON=/path/to/python3"
    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

set(stubs_folder ${CMAKE_BINARY_DIR}/cuda-stubs)
file(MAKE_DIRECTORY ${stubs_folder})
file(REAL_PATH ${FRACTUS_TORCH}/lib torch_lib)
file(GLOB cuda_folders ${torch_lib}/../../nvidia/*/lib)
execute_process(
  COMMAND ${FRACTUS_VENV_PYTHON} -I ${CMAKE_SOURCE_DIR}/cmake/cuda_stubs.py ${torch_lib} ${stubs_folder} ${cuda_folders}
  OUTPUT_VARIABLE stubs COMMAND_ERROR_IS_FATAL ANY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cmake/cuda_stubs.py harness/python/support.py)

enable_language(C)
foreach(soname IN LISTS stubs)
  string(REGEX REPLACE "[^a-zA-Z0-9]" "_" target "stub-${soname}")
  add_library(${target} SHARED EXCLUDE_FROM_ALL ${stubs_folder}/${soname}.c)
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${soname} NO_SONAME TRUE
    LIBRARY_OUTPUT_DIRECTORY ${stubs_folder})
  target_compile_options(${target} PRIVATE -w)
  target_link_options(${target} PRIVATE -Wl,-soname,${soname})
  file(SIZE ${stubs_folder}/${soname}.map scopes)
  if(scopes GREATER 0)
    target_link_options(${target} PRIVATE -Wl,--version-script,${stubs_folder}/${soname}.map)
  endif()
  list(APPEND stub_targets ${target})
endforeach()

file(READ harness/python/support.py FRACTUS_SUPPORT)
configure_file(harness/python/support.h.in ${CMAKE_BINARY_DIR}/generated/harness/python/support.h @ONLY)
# What it asks of a contract it has of its own: the worker exports nothing.
file(GLOB of_contracts CONFIGURE_DEPENDS contracts/*.cpp)
add_library(fractus-python MODULE EXCLUDE_FROM_ALL harness/python/language.cpp ${of_contracts})
set_target_properties(fractus-python PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
target_include_directories(fractus-python PRIVATE ${CMAKE_BINARY_DIR}/generated)
target_include_directories(fractus-python SYSTEM PRIVATE ${python_include})
target_compile_definitions(fractus-python PRIVATE FRACTUS_PYTHON_PROGRAM="${FRACTUS_VENV_PYTHON}"
  FRACTUS_FIELD_GLUE="${CMAKE_SOURCE_DIR}/python/fractus_verify/field_device.py")
# The stand-ins come first: a library that is loaded already is not looked for when libtorch_cuda names it.
target_link_options(fractus-python PRIVATE -Wl,--no-as-needed -Wl,-rpath,${stubs_folder} -Wl,-rpath-link,${stubs_folder})
target_link_libraries(fractus-python PRIVATE ${stub_targets} torch_cpu_only ${FRACTUS_TORCH}/lib/libtorch_python.so ${python_library})
