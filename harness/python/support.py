"""What the worker asks of Python. Built into fractus-python.so, and run before anything of a candidate."""
import ast
import gc
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import math
import operator
import os
import pathlib
import random
import re
import sys
import sysconfig
import traceback

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # candidates run on the CPU; a GPU would be found without its libraries

import numpy
import torch

# Where a function that is replaced changes what everybody else in the process computes. Lazily added names are torch's
# own doing, so only what was there is watched; on torch.Tensor a new name that hides one of its base counts too.
_WATCHED = {"torch": torch, "torch.Tensor": torch.Tensor, "torch._C.TensorBase": torch._C.TensorBase,
            "torch.nn.functional": torch.nn.functional, "torch.linalg": torch.linalg, "torch.special": torch.special,
            "torch.fft": torch.fft, "torch.autograd": torch.autograd, "torch.autograd.Function": torch.autograd.Function,
            "math": math, "numpy": numpy, "torch.nn.Module": torch.nn.Module, "torch.optim.Optimizer": torch.optim.Optimizer}
for _base, _package in ((torch.nn.Module, torch.nn), (torch.optim.Optimizer, torch.optim)):
    _WATCHED |= {f"{_package.__name__}.{name}": kind for name, kind in vars(_package).items() if isinstance(kind, type) and issubclass(kind, _base)}
_TORCH = str(pathlib.Path(torch.__file__).parent)
_own = {where: {name: value for name, value in vars(owner).items() if callable(value)} for where, owner in _WATCHED.items()}
# The same as the check after each call wants it.
_quickly = [(vars(owner), tuple(_own[where]), tuple(_own[where].values())) for where, owner in _WATCHED.items()]
_names_of_tensor = len(vars(torch.Tensor))


def _numpy_state():
    state = numpy.random.get_state(legacy=False)["state"]
    return state["key"].tobytes(), state["pos"]


# What else a call may not leave changed, since whatever runs after it in the process would see it. torch's compilers put
# names of their own into the environment.
_STATE = {"Python's random generator was used or seeded": random.getstate,
          "numpy's random generator was used or seeded": _numpy_state,
          "the working directory was changed": os.getcwd,
          "the environment was changed": lambda: {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON"))},
          "the search for anomalies in autograd was switched": torch.is_anomaly_enabled}
_state = {}  # as it was before the process's first call


def _note():
    _state.update({what: of() for what, of in _STATE.items()})


# What was imported beside the standard library and the installed packages, so that a signature can bind it: by path, the
# SHA-256 of the bytes that were run. Noted where they are read: a file may be another one later.
_INSTALLED = tuple({os.path.realpath(folder) + os.sep for folder in (*(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")), _TORCH)})
_read = {}
_unbound = []  # of what has no such bytes, a sentence each
_named = set()  # files that are the candidate's wherever they lie
_seen = set()  # names of modules
_told = [0, 0]  # how many of `_read` and `_unbound` the worker knows


def _is_installed(path):
    real = os.path.realpath(path)
    return real.startswith(_INSTALLED) and real not in _named


def _note_read(path, data):
    real, digest = os.path.realpath(path), hashlib.sha256(data).hexdigest()
    if _read.setdefault(real, digest) != digest:
        _unbound.append(f"{path} changed between two times that it was read")


_get_code = importlib.machinery.SourceFileLoader.get_code
_get_bytecode = importlib.machinery.SourcelessFileLoader.get_code
_open_extension = importlib.machinery.ExtensionFileLoader.create_module


def _compile(loader, fullname):
    """What is run is what the file says: a .pyc beside it may be of other bytes, since only time and size are compared."""
    path = loader.get_filename(fullname)
    if _is_installed(path):
        return _get_code(loader, fullname)
    data = loader.get_data(path)
    _note_read(path, data)
    return loader.source_to_code(data, path)


def _load_bytecode(loader, fullname):
    path = loader.get_filename(fullname)
    if not _is_installed(path):
        _note_read(path, loader.get_data(path))
    return _get_bytecode(loader, fullname)


def _load_extension(loader, spec):
    if not _is_installed(spec.origin):
        _note_read(spec.origin, pathlib.Path(spec.origin).read_bytes())
    return _open_extension(loader, spec)


importlib.machinery.SourceFileLoader.get_code = _compile
importlib.machinery.SourcelessFileLoader.get_code = _load_bytecode
importlib.machinery.ExtensionFileLoader.create_module = _load_extension


def loaded():
    """What has been imported since the last time that this was asked: paths with digests, and of what has none, a sentence each."""
    for name in sys.modules.keys() - _seen:
        _seen.add(name)
        try:
            spec = sys.modules[name].__spec__
            path = spec.origin if spec.has_location else None
        except Exception:
            continue  # made by code that has been read, and by no import
        if path is not None and not _is_installed(path) and os.path.realpath(path) not in _read:
            _unbound.append(f"the module {name} comes from {path} by way of {type(spec.loader).__name__}, which reads no file of its own")
    for path in [path for path in list(_read)[_told[0]:] if not path.isprintable()]:
        _unbound.append(f"the name of the file {ascii(path)} cannot be printed")
    files, others = list(_read.items())[_told[0]:], _unbound[_told[1]:]
    _told[:] = len(_read), len(_unbound)
    return [(path, digest) for path, digest in files if path.isprintable()], [ascii(text)[1:-1] for text in others]


_glue = {}


def use_glue(path):
    """Where the program stands, and the device `field`: what the package fractus_verify has of them, by the same file."""
    _glue.update(__file__=path, __name__="fractus_field_device")
    exec(compile(pathlib.Path(path).read_bytes(), path, "exec"), _glue)


def place():
    return _glue["place"]()


def open_device():
    _glue["register"]()
    torch.set_default_device("field")  # where a function names no device, its floats go with kernels on the CPU, too
    # Generated code reads memory by itself. What torch.compile is given runs as it stands.
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("force_eager")


class NotThere(Exception):
    """The file has no such function; `known` are those that it has."""

    def __init__(self, text, known):
        super().__init__(text)
        self.known = known


def _is_of_torch(function):
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _wraps(wrapper, original):
    """Is it torch's own wrapper of what was there? torch._dynamo, imported by whoever needs it first, leaves some."""
    while wrapper is not original:
        if not _is_of_torch(wrapper):
            return False
        wrapper = getattr(wrapper, "__wrapped__", None)
    return True


def changes():
    """A sentence for each function that is not what it was, three at most."""
    if len(vars(torch.Tensor)) == _names_of_tensor and not any(any(map(operator.is_not, map(now.get, names), values)) for now, names, values in _quickly):
        return []
    found = []
    for where, before in _own.items():
        now = vars(_WATCHED[where])
        # torch's compilers give the methods of modules and optimizers another code of theirs.
        mended = where.startswith(("torch.nn.", "torch.optim."))
        found += [f"{where}.{name} was replaced" for name, value in before.items()
                  if now.get(name) is not value and not _wraps(now.get(name), value) and not (mended and _is_of_torch(now.get(name)))]
    hidden = vars(torch.Tensor).keys() - _own["torch.Tensor"].keys()
    found += [f"torch.Tensor.{name} was replaced" for name in sorted(hidden) if hasattr(torch._C.TensorBase, name) and callable(getattr(torch.Tensor, name))]
    return found[:3]


def settle():
    gc.collect()  # autograd's contexts and their tensors hold each other; in a training run this comes by itself
    return (changes() + [what for what, value in _state.items() if _STATE[what]() != value])[:3]


def outline(path):
    """The names that the top level of a file binds with def or =, each with its parameters (None where they are not to be read
    there), without running it."""
    names = {}
    for node in ast.parse(pathlib.Path(path).read_bytes(), path).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names[node.name] = [argument.arg for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
        elif isinstance(node, ast.Assign):
            names |= {target.id: None for target in node.targets if isinstance(target, ast.Name)}
    return [(name, parameters is not None, parameters or []) for name, parameters in names.items()]


def prepare(path):
    """Imports what the file's calls would, by its words; the file is not run. torch._dynamo takes seconds, in each process
    that needs it unless the one that they are forked from has it. True where the file may have code generated."""
    text = pathlib.Path(path).read_bytes() if path.endswith(".py") else b""
    if re.search(rb"checkpoint|compile|_dynamo|export|functorch", text):
        importlib.import_module("torch._dynamo")
    return b"compile" in text


def load(path, name, arguments):
    """Runs the file and gives the function and the first line of its docstring."""
    file = pathlib.Path(path).absolute()
    torch.set_num_threads(1)  # a pool of threads that exists when the process forks is lost to its children
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(file.parent))
    _named.add(os.path.realpath(file))
    _seen.update(sys.modules)
    stem = file.stem if file.stem not in sys.modules else f"candidate_{file.stem}"
    spec = importlib.util.spec_from_file_location(stem, file)
    module = sys.modules[stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if replaced := changes():
        raise RuntimeError(f"running the file changed torch for everybody: {'; '.join(replaced)}")
    function = getattr(module, name, None)
    if function is None:
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("__")]
        raise NotThere(f"{path} has no function", known)
    if not callable(function):
        raise TypeError(f"{name} in {path}: wanted a function, got {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        signature = None  # a builtin has none
    if signature is not None:
        try:
            signature.bind(**dict.fromkeys(arguments))
        except TypeError as error:
            raise TypeError(f"{name}{signature}: wanted the arguments {', '.join(arguments)} by name; {error}") from None
    summary = next(iter((inspect.getdoc(function) or "").splitlines()), "")
    # Whatever exists by now stays: a collection after each call looks at that call's objects alone.
    gc.collect()
    gc.freeze()
    os.register_at_fork(after_in_child=_note)  # behind Python's own, which seeds its generator anew
    return function, summary


def describe(error):
    """What went wrong, then the last places that it came through, innermost first, in one line."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        text += " (a candidate's packages are those of the checkout's .venv)"
    lines = [f"{type(error).__name__}: {text}" if text else type(error).__name__]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    for frame in reversed(frames[-3:]):
        code = linecache.getline(frame.filename, frame.lineno or 0).strip()
        lines.append(f"{frame.filename}, line {frame.lineno}, in {frame.name}: {code}")
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}")
    return "; at ".join(lines)


def is_out_of_memory(error):
    return isinstance(error, (MemoryError, torch.OutOfMemoryError))
