// The facts of a machine, read from files that look like those of other machines.
#include "attest/machine.h"

#include "tests/attest/folder.h"

namespace fractus::attest {
namespace {

using Machines = Folder;

// Protects the gate's comparison: of the kernel's list exactly what numerical libraries dispatch on, in one order; the
// GPU's model and driver where one is there, and neither where none is.
TEST_F(Machines, FactsAreReadFromProc) {
  write("cpuinfo",
        "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu fma avx2 amx_bf16 ht smep sse4_2 avx512f sme\n\n"
        "processor\t: 1\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu\n");
  Machine machine = this_machine(folder);
  EXPECT_EQ(machine.at("cpu"), "A CPU @ 2 GHz");
  EXPECT_EQ(machine.at("cpu_features"), "amx_bf16 avx2 avx512f fma sse4_2");
  EXPECT_FALSE(machine.contains("gpu"));
  EXPECT_FALSE(machine.contains("driver"));

  write("driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12\n");
  write("driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 5\n");
  write("driver/nvidia/gpus/0000:02:00.0/information", "Model: \t\t NVIDIA H200\n");
  machine = this_machine(folder);
  EXPECT_EQ(machine.at("gpu"), "NVIDIA H200");
  EXPECT_EQ(machine.at("driver"), "580.65.06");
  write("driver/nvidia/gpus/0000:03:00.0/information", "Model: \t\t NVIDIA A100\n");
  EXPECT_EQ(this_machine(folder).at("gpu"), "NVIDIA A100, NVIDIA H200");

  write("cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU part\t: 0xd4f\n");
  EXPECT_EQ(this_machine(folder).at("cpu_features"), "asimd bf16 sve");
  EXPECT_EQ(this_machine(folder / "absent").at("cpu"), "unknown");
  EXPECT_FALSE(this_machine().at("system").empty());
}

// Protects: torch's version is read from its text, and a file that says none is no machine fact.
TEST_F(Machines, TorchIsReadFromItsText) {
  const auto read = [&](const std::string& text) {
    write("torch/version.py", text);
    return torch_in(folder / "torch");
  };
  EXPECT_EQ(read("from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.11.0+cu130'\ndebug = False\n"
                 "cuda: Optional[str] = '13.0'\n"),
            (Machine{{"torch", "2.11.0+cu130"}, {"cuda", "13.0"}}));
  EXPECT_EQ(read("__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n").at("cuda"), "none");
  for (const char* text : {"", "__version__ = get()\ncuda = '1'\n", "__version__ = '2'\n", "cuda = '13'\n"})
    EXPECT_NE(error_of([&] { read(text); }).find("version of torch"), std::string::npos) << text;
  EXPECT_NE(error_of([&] { torch_in(folder / "absent"); }), "");
}

}  // namespace
}  // namespace fractus::attest
