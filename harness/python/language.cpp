// fractus-python.so: Python and torch's Python side in the worker's process, and Python functions as forms.
//
// The global interpreter lock is held around Python only. Autograd must not run under it: a node that is Python code
// takes it by itself, and the engine refuses to start otherwise.
#include "harness/worker/language.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/eval.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "harness/python/support.h"

namespace fractus::worker {
namespace {

namespace py = pybind11;

// Never destroyed: the process ends without taking Python down.
py::object& support() {
  static auto* const module = new py::object;
  return *module;
}

std::string described(const py::object& error) { return support().attr("describe")(error).cast<std::string>(); }

// Throws what the Python error that is being handled means to the worker. Needs the lock.
[[noreturn]] void translate(const py::error_already_set& error) {
  const py::object value = error.value();
  if (error.trace()) PyException_SetTraceback(value.ptr(), error.trace().ptr());
  const std::string text = described(value);
  TORCH_CHECK_WITH(OutOfMemoryError, !support().attr("is_out_of_memory")(value).cast<bool>(), text);
  if (py::isinstance(value, support().attr("NotThere")))
    throw outside::NotThere(py::str(value), value.attr("known").cast<std::vector<std::string>>());
  throw std::runtime_error(text);
}

template <class Work>
auto in_python(Work work) {
  const py::gil_scoped_acquire lock;
  try {
    return work();
  } catch (const py::error_already_set& error) {
    translate(error);
  }
}

std::string type_name(py::handle object) {
  return object.is_none() ? "None" : fmt::format("a value of type {}", Py_TYPE(object.ptr())->tp_name);
}

at::Tensor tensor_from(py::handle object, const std::string& name) {
  if (!THPVariable_Check(object.ptr()))
    throw std::invalid_argument(fmt::format("{}: wanted a tensor, got {}", name, type_name(object)));
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  // Such an object computes when it is asked for anything; there is no memory to read.
  if (tensor.unsafeGetTensorImpl()->key_set().has(at::DispatchKey::Python))
    throw std::invalid_argument(fmt::format("{}: wanted a plain tensor, got {}", name, type_name(object)));
  return tensor;
}

Tensors outputs_from(const py::object& result, const Contract& contract) {
  std::vector<std::string> names;
  for (const TensorSpec& output : contract.outputs) names.push_back(output.name);
  if (names.size() == 1 && THPVariable_Check(result.ptr())) return {tensor_from(result, names[0])};
  const std::string wanted = fmt::format("wanted a tuple of {} tensors ({})", names.size(), fmt::join(names, ", "));
  if (!py::isinstance<py::tuple>(result))
    throw std::invalid_argument(fmt::format("{}, got {}", wanted, type_name(result)));
  const auto tuple = py::reinterpret_borrow<py::tuple>(result);
  if (tuple.size() != names.size())
    throw std::invalid_argument(fmt::format("{}, got a tuple of {}", wanted, tuple.size()));
  Tensors outputs;
  for (std::size_t i = 0; i < names.size(); ++i) outputs.push_back(tensor_from(tuple[i], names[i]));
  return outputs;
}

// A divisor of 0 stands in calls that are to be refused.
std::int64_t told_by(const Told& told, const Dims& dims) {
  const std::int64_t over = told.over.empty() ? 1 : dims.at(told.over);
  return over == 0 ? 0 : dims.at(told.extent) / over;
}

// The arguments by name. What belongs to a group stands in a dict of the group's name, without what is absent and
// without what is as usual: the engine's own config leaves that out, so a form's defaults are part of what is judged.
py::dict arguments_of(const Contract& contract, const Tensors& inputs, const Scalars& scalars) {
  py::dict by_name;
  const auto put = [&](const std::string& group, const std::string& name, const py::object& value) {
    if (group.empty()) return void(by_name[name.c_str()] = value);
    if (!by_name.contains(group.c_str())) by_name[group.c_str()] = py::dict();
    by_name[group.c_str()][name.c_str()] = value;
  };
  for (std::size_t i = 0; i < contract.inputs.size(); ++i) {
    const TensorSpec& input = contract.inputs[i];
    if (inputs[i].defined())
      put(input.group, input.name, py::reinterpret_steal<py::object>(THPVariable_Wrap(inputs[i])));
    else if (input.group.empty())
      put("", input.name, py::none());
  }
  for (const ScalarSpec& scalar : contract.scalars) {
    const double value = scalars.at(scalar.name);
    if (const auto usual = contract.usual.find(scalar.name); !scalar.group.empty() && usual != contract.usual.end())
      if (value == usual->second) continue;
    put(scalar.group, scalar.name,
        scalar.whole ? py::object(py::int_(static_cast<std::int64_t>(value))) : py::object(py::float_(value)));
  }
  if (contract.told.empty()) return by_name;
  const Dims dims = dims_of(contract, inputs, scalars);
  for (const Told& told : contract.told) put(told.group, told.name, py::int_(told_by(told, dims)));
  return by_name;
}

Form load(const std::string& path, const std::string& name, const Contract& contract) {
  return in_python([&] {
    const auto loaded = py::tuple(support().attr("load")(path, name, argument_names(contract)));
    auto* const function = new py::object(loaded[0]);  // kept: what destroys the form holds no lock
    Form form;
    form.summary = loaded[1].cast<std::string>();
    form.run = [function, &contract](const Tensors& inputs, const Scalars& scalars, const Settings&) {
      return in_python([&] { return outputs_from((*function)(**arguments_of(contract, inputs, scalars)), contract); });
    };
    form.settle = [] { return in_python([] { return support().attr("settle")().cast<std::vector<std::string>>(); }); };
    return form;
  });
}

bool prepare(const std::string& path) {
  return in_python([&] { return support().attr("prepare")(path).cast<bool>(); });
}

outside::Loaded loaded() {
  return in_python([] {
    const auto [files, unbound] =
        support()
            .attr("loaded")()
            .cast<std::pair<std::vector<std::pair<std::string, std::string>>, std::vector<std::string>>>();
    return outside::Loaded{{files.begin(), files.end()}, unbound};
  });
}

std::vector<outside::Outlined> outline(const std::string& path) {
  return in_python([&] {
    std::vector<outside::Outlined> all;
    for (const auto& [name, is_function, parameters] :
         support().attr("outline")(path).cast<std::vector<std::tuple<std::string, bool, std::vector<std::string>>>>())
      all.push_back({name, is_function, parameters});
    return all;
  });
}

std::string place() {
  return in_python([] { return support().attr("place")().cast<std::string>(); });
}

void open_device() {
  in_python([] { support().attr("open_device")(); });
}

std::optional<std::string> exception_text() {
  try {
    throw;
  } catch (const python_error& error) {
    const py::gil_scoped_acquire lock;
    if (error.value == nullptr) return error.what();
    // One that was raised by C++ on a thread of autograd's may still be a type and a text.
    PyObject *type = error.type, *value = error.value, *traceback = error.traceback;
    for (PyObject* part : {type, value, traceback}) Py_XINCREF(part);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != nullptr) PyException_SetTraceback(value, traceback);
    std::string text = described(py::reinterpret_borrow<py::object>(value));
    for (PyObject* part : {type, value, traceback}) Py_XDECREF(part);
    return text;
  } catch (...) {
    return std::nullopt;
  }
}

void require(const PyStatus& status) {
  if (PyStatus_Exception(status))
    throw std::runtime_error(fmt::format("Python does not start: {}", status.err_msg ? status.err_msg : "no reason"));
}

// Deaf to the caller's environment: a verdict must not depend on a PYTHONPATH.
void start_python() {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;
  require(Py_PreInitialize(&before));
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.install_signal_handlers = 0;
  config.buffered_stdio = 0;  // what was printed before a crash is not lost, nor printed again by a fork
  config.faulthandler = 1;    // a crash says where
  require(PyConfig_SetBytesString(&config, &config.program_name, FRACTUS_PYTHON_PROGRAM));
  require(PyConfig_SetBytesString(&config, &config.executable, FRACTUS_PYTHON_PROGRAM));
  require(Py_InitializeFromConfig(&config));
  PyConfig_Clear(&config);
}

// The lock's state as fork() finds it.
PyGILState_STATE& at_fork() {
  static PyGILState_STATE state;
  return state;
}

}  // namespace
}  // namespace fractus::worker

extern "C" __attribute__((visibility("default"))) void fractus_language(fractus::worker::Language& language) {
  using namespace fractus::worker;
  start_python();
  try {
    const py::object types = py::module_::import("types");
    py::object module = types.attr("ModuleType")("fractus_support");
    py::exec(fractus::worker::support_source, module.attr("__dict__"));
    support() = module;
    support().attr("use_glue")(FRACTUS_FIELD_GLUE);
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(fmt::format("Python cannot import torch: {}", error.what()));
  }
  PyEval_SaveThread();
  language.prepare = prepare;
  language.load = load;
  language.loaded = loaded;
  language.outline = outline;
  language.open_device = open_device;
  language.place = place;
  language.exception_text = exception_text;
  language.before_fork = [] {
    at_fork() = PyGILState_Ensure();
    PyOS_BeforeFork();
  };
  language.after_fork_in_parent = [] {
    PyOS_AfterFork_Parent();
    PyGILState_Release(at_fork());
  };
  language.after_fork_in_child = [] {
    PyOS_AfterFork_Child();
    PyGILState_Release(at_fork());
  };
}
