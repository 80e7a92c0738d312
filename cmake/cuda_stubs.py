"""Sources of libraries that stand in for those of CUDA: cuda_stubs.py TORCH_LIB OUT [SKIP_IF_IN ...]

`import torch` from PyPI's wheel loads libtorch_cuda, which names ten libraries of CUDA that it needs: 2.5 GB for code that
no candidate on the CPU calls. Each gets a stand-in with its name, its versions and the functions that torch takes from it;
one that is called says so and aborts. A library that lies in one of the folders SKIP_IF_IN is real, and gets none.

Writes OUT/SONAME.c and OUT/SONAME.map, and prints the sonames, separated by semicolons."""
import collections
import pathlib
import re
import subprocess
import sys

USERS = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so", "libc10_cuda.so")
OF_CUDA = r"(cublas|cudnn|cusparse|cufft|cuFile|nccl|nvshmem|curand)"
SOURCE = """#include <stdlib.h>
#include <unistd.h>
static void called(const char* text, unsigned long length) {
  if (write(2, text, length) < 0) abort();
  abort();
}
"""


def readelf(option, library):
    return subprocess.run(["readelf", "-W", option, library], capture_output=True, text=True, check=True).stdout


def versions_by_file(library):
    """What the library needs: {soname: {version, ...}}."""
    found, soname = {}, None
    for line in readelf("-V", library).splitlines():
        if file := re.search(r"File: (\S+)", line):
            soname = found.setdefault(file[1], set())
        elif (name := re.search(r"Name: (\S+)\s+Flags", line)) and soname is not None:
            soname.add(name[1])
    return found


def main(torch_lib, out, *real):
    needed, owner, wanted = [], {}, collections.defaultdict(set)
    for library in (torch_lib / name for name in USERS):
        for soname in re.findall(r"\(NEEDED\).*\[(\S+)\]", readelf("-d", library)):
            if re.match(r"lib" + OF_CUDA.lower(), soname.lower()) and soname not in needed:
                needed.append(soname)
        owner.update({version: soname for soname, versions in versions_by_file(library).items() for version in versions})
        for name, version in re.findall(r"\bUND (\w+)(?:@(\S+))?", readelf("--dyn-syms", library)):
            if re.match(OF_CUDA, name):
                # Symbols without a version may come from any library that is loaded.
                wanted[owner.get(version, needed[0])].add((version, name))
    missing = [soname for soname in needed if not any((folder / soname).exists() for folder in real)]
    for soname in missing:
        functions, scopes = [SOURCE], collections.defaultdict(list)
        for version, name in sorted(wanted[soname]):
            text = f"fractus-verify: {name} was called; candidates run on the CPU, without the libraries of CUDA\\n"
            functions.append(f'void {name}(void) {{ called("{text}", sizeof "{text}" - 1); }}\n')
            if version:
                scopes[version].append(name)
        (out / f"{soname}.c").write_text("".join(functions))
        (out / f"{soname}.map").write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in scopes.items()))
    print(";".join(missing), end="")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
