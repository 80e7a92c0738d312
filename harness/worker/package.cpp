#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "harness/worker/compiled.h"

namespace fractus::worker {
namespace {

namespace fs = std::filesystem;
using torch::inductor::AOTIModelContainerRunnerCpu;

// Torch's own loader leaves its unpacked files behind where a process is killed, as ours are. Here they are gone as
// soon as the library is mapped.
struct Unpacked {
  fs::path folder;
  fs::path library;

  explicit Unpacked(const std::string& package) {
    std::string name = fs::temp_directory_path() / "fractus-package-XXXXXX";
    if (mkdtemp(name.data()) == nullptr)
      throw std::runtime_error(fmt::format("cannot make a folder like {}: {}", name, std::strerror(errno)));
    folder = name;
    try {
      unpack(package);
    } catch (...) {
      fs::remove_all(folder);
      throw;
    }
  }
  ~Unpacked() {
    std::error_code error;
    fs::remove_all(folder, error);
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

 private:
  void unpack(const std::string& package) {
    caffe2::serialize::PyTorchStreamReader reader(package);
    for (const std::string& record : reader.getAllRecords()) {
      if (!record.starts_with("data/aotinductor/")) continue;
      const fs::path file = folder / fs::path(record).filename();
      const auto [data, bytes] = reader.getRecord(record);
      std::ofstream(file, std::ios::binary)
          .write(static_cast<const char*>(data.get()), static_cast<std::streamsize>(bytes));
      if (!fs::exists(file) || fs::file_size(file) != bytes)
        throw std::runtime_error(fmt::format("cannot unpack {} into {}", record, folder.string()));
      if (file.extension() != ".so") continue;
      if (!library.empty()) throw std::invalid_argument("the package holds more than one model; wanted one");
      library = file;
    }
    if (library.empty())
      throw std::invalid_argument(
          "the package holds no compiled model; wanted what torch._inductor.aoti_compile_and_package writes");
  }
};

Tensors all_contiguous(const Contract& contract, const Tensors& inputs) {
  const Dims dims = dims_of(contract, inputs, {});
  Tensors all;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    all.push_back(inputs[i].defined() ? inputs[i].contiguous()
                                      : at::zeros(shape_of(contract.inputs[i], dims), inputs.front().options()));
  return all;
}

}  // namespace

Form load_package(const outside::Spec& spec, const Contract& contract) {
  if (!contract.scalars.empty())
    throw std::invalid_argument(fmt::format(
        "an exported package takes tensors alone, and {} has the argument {} beside them; give what it was exported "
        "from, as {}",
        contract.kernel, contract.scalars.front().name, outside::kinds[0].spelling));
  at::set_num_threads(1);  // as for the other kinds: no pool of threads before the fork
  const Unpacked unpacked(spec.path);
  const auto runner = std::make_shared<AOTIModelContainerRunnerCpu>(unpacked.library);
  Form form;
  form.summary = "AOTInductor package, forward only; inputs are made contiguous, absent ones zeros";
  form.run = [runner, &contract](const Tensors& inputs, const Scalars&, const Settings&) {
    const c10::NoGradGuard no_grad;
    Tensors outputs = runner->run(all_contiguous(contract, inputs));
    if (outputs.size() != contract.outputs.size())
      throw std::invalid_argument(fmt::format("wanted {} tensors, got {}", contract.outputs.size(), outputs.size()));
    return outputs;
  };
  return form;
}

}  // namespace fractus::worker
