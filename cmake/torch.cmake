# torch_cpu and c10 from PyPI's wheel, taken by path: find_package(Torch) asks for the CUDA toolkit even where nothing
# of CUDA is used. FRACTUS_TORCH is torch's folder; the CUDA runtime and CUPTI libraries that torch_cpu names in its
# own NEEDED entries are found through its RPATH.
if(NOT EXISTS ${FRACTUS_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "FRACTUS_TORCH: wanted torch's folder (with lib/libtorch_cpu.so), got '${FRACTUS_TORCH}'. Run ./fractus-verify once: it installs torch 2.11.0 into .venv.")
endif()
# Which it is, for what a verdict says of its machine.
file(STRINGS ${FRACTUS_TORCH}/version.py torch_version REGEX "^__version__ = '.*'")
file(STRINGS ${FRACTUS_TORCH}/version.py torch_cuda REGEX "^cuda[: ].*=")
string(REGEX REPLACE "^.*'(.*)'.*$" "\\1" torch_version "${torch_version}")
string(REGEX REPLACE "^.*= *'?([^']*)'?.*$" "\\1" torch_cuda "${torch_cuda}")
add_library(torch_cpu_only INTERFACE)
target_include_directories(torch_cpu_only SYSTEM INTERFACE ${FRACTUS_TORCH}/include ${FRACTUS_TORCH}/include/torch/csrc/api/include)
# torch's include folder has a newer fmt than Debian's: where torch is seen, that one is used, and as headers only.
target_compile_definitions(torch_cpu_only INTERFACE FMT_HEADER_ONLY)
target_link_options(torch_cpu_only INTERFACE -Wl,--no-as-needed -Wl,-rpath,${FRACTUS_TORCH}/lib
  -Wl,-rpath-link,${FRACTUS_TORCH}/../nvidia/cu13/lib)
target_link_libraries(torch_cpu_only INTERFACE ${FRACTUS_TORCH}/lib/libtorch_cpu.so ${FRACTUS_TORCH}/lib/libc10.so)
if(FRACTUS_CUDA)
  target_link_libraries(torch_cpu_only INTERFACE ${FRACTUS_TORCH}/lib/libtorch_cuda.so ${FRACTUS_TORCH}/lib/libc10_cuda.so)
endif()
