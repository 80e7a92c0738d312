"""What torch's users test a rewritten function with, run on functions of a file: run.py KERNEL FILE.py FUNCTION...

Prints JSON: {"start_seconds", "tools": [{"tool", "settings", "inputs", "functions": [{"name", "result", "reason", "seconds"}]}]}. A result
is accepted, refused, or fault: the tool came to no answer of its own, which speaks neither for nor against the function.
A function meets a tool in a process of its own, with limits. Before that each tool must accept the reference, and refuse it with
values and gradients a few percent off; a tool that does not would measure nothing, and the run fails."""
import time

START = time.monotonic()

import ctypes
import importlib.util
import json
import os
import pathlib
import re
import resource
import select
import signal
import sys

import torch
from torch.autograd.gradcheck import GradcheckError

LIMIT_S = 60
ADDRESS_SPACE = 12 << 30


class Refused(Exception):
    """The tool's answer."""


def first_line(error):
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:300]


# ---------------------------------------------------------------- the tools: prepare(kernel), then judge(function, prepared)

def called(function, inputs, outputs):
    result = tuple(function(**inputs))
    if len(result) != len(outputs) or not all(isinstance(x, torch.Tensor) for x in result):
        raise TypeError(f"wanted {len(outputs)} tensors, got {[type(x).__name__ for x in result]}")
    return result


def values_and_gradients(function, inputs, cotangents):
    """By name: each output, and each input's gradient through the sum of all outputs times their cotangents."""
    leaves = {name: None if x is None else x.detach().requires_grad_() for name, x in inputs.items()}
    given = {name: x for name, x in leaves.items() if x is not None}
    outputs = called(function, leaves, cotangents)
    loss = sum((x * c).sum() for x, c in zip(outputs, cotangents.values()))
    gradients = torch.autograd.grad(loss, given.values(), allow_unused=True)
    return dict(zip(cotangents, outputs)) | {f"d{name}": g for name, g in zip(given, gradients)}


def expectations(kernel):
    found = []
    for seed, shape in enumerate(kernel.COMPARED):
        generator = torch.Generator().manual_seed(seed)
        inputs = kernel.inputs(generator, torch.float32, **shape)
        outputs = kernel.reference(**inputs)
        cotangents = {name: torch.randn(x.shape, generator=generator) for name, x in zip(kernel.OUTPUTS, outputs)}
        found.append((inputs, cotangents, values_and_gradients(kernel.reference, inputs, cotangents)))
    return found


def comparison(rule):
    def judge(function, expected):
        for inputs, cotangents, wanted in expected:
            got = values_and_gradients(function, inputs, cotangents)
            for name in wanted:
                try:
                    assert got[name] is not None, "there is none"
                    rule(got[name], wanted[name])
                except AssertionError as error:
                    raise Refused(f"{name}: {next(iter(str(error).splitlines()))}") from None
    return judge


def relative_rms(limit):
    """flash-linear-attention's rule (fla/utils.py): max |a - b| <= 1e-6, or rms(a - b) / (rms(b) + 1e-8) < limit."""
    def rule(got, wanted):
        assert got.shape == wanted.shape, f"shape {list(got.shape)}, wanted {list(wanted.shape)}"
        difference = got.detach() - wanted.detach()
        ratio = difference.square().mean().sqrt() / (wanted.detach().square().mean().sqrt() + 1e-8)
        assert difference.abs().max() <= 1e-6 or ratio < limit, f"the relative RMS error is {ratio:.2e}"
    return rule


def probes(kernel):
    return kernel.OUTPUTS, [kernel.inputs(torch.Generator().manual_seed(seed), torch.float64, **shape)
                            for seed, shape in enumerate(kernel.PROBED)]


def gradcheck(**settings):
    def judge(function, prepared):
        outputs, problems = prepared
        for inputs in problems:
            names = [name for name, x in inputs.items() if x is not None]
            leaves = [inputs[name].clone().requires_grad_() for name in names]
            try:
                torch.autograd.gradcheck(lambda *given: called(function, inputs | dict(zip(names, given)), outputs), leaves, **settings)
            except GradcheckError as error:
                raise Refused(next(iter(str(error).strip().splitlines()))) from None
    return judge


def shapes(list_of):
    return ", ".join(" ".join([*(f"{n} {x}" for n, x in shape.items() if not isinstance(x, bool)), *(n for n, x in shape.items() if x is True)])
                     for shape in list_of)


def tools(kernel):
    """Name, settings and inputs in words, prepare, judge."""
    probed = (f"float64 at {shapes(kernel.PROBED)}", probes)
    compared = (f"float32, random cotangents of all outputs, at {shapes(kernel.COMPARED)}", expectations)
    close = torch.testing.assert_close
    return (("gradcheck", "its defaults: eps 1e-6, atol 1e-5, rtol 1e-3", *probed, gradcheck()),
            ("gradcheck fast", "the same with fast_mode", *probed, gradcheck(fast_mode=True)),
            ("assert_close", "values and gradients, its defaults: rtol 1.3e-6, atol 1e-5", *compared, comparison(close)),
            ("assert_close 1e-4", "the same, rtol and atol 1e-4", *compared, comparison(lambda a, b: close(a, b, rtol=1e-4, atol=1e-4))),
            ("relative RMS 5e-3", "values and gradients, flash-linear-attention's rule", *compared, comparison(relative_rms(5e-3))),
            ("relative RMS 1e-3", "the same, sharper", *compared, comparison(relative_rms(1e-3))))


# ---------------------------------------------------------------- a function and a tool in a process

def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(path, name):
    sys.path.insert(0, str(path.parent))
    return getattr(module_of(path, f"candidate_{path.stem}"), name)


def attempt(prepare, judge, kernel, get, send):
    prepared = prepare(kernel)
    function = get()
    send("judging")  # what ends the process from here on is the function's doing
    try:
        judge(function, prepared)
    except Refused as error:
        send("refused", str(error))
    except BaseException as error:  # an exit too; the tool itself got through with the reference
        send("refused", first_line(error))
    else:
        send("accepted", "")


def child(work, writing):
    os.setsid()
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)

    def send(*words):
        os.write(writing, (json.dumps(words) + "\n").encode())

    try:
        work(send)
    except BaseException as error:
        send("fault", first_line(error))
    os._exit(0)


def lines_until(reading, deadline):
    """What is sent until it is complete, the sender has ended, or the time is up."""
    text = b""
    while (left := deadline - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        part = os.read(reading, 1 << 16)
        text += part
        lines = [json.loads(line) for line in text.split(b"\n")[:-1]]
        if not part or (lines and len(lines[-1]) == 2):
            return lines, ""
    return [json.loads(line) for line in text.split(b"\n")[:-1]], f"no end within {LIMIT_S} s"


def tried(work):
    start = time.monotonic()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(work, writing)
    os.close(writing)
    lines, ending = lines_until(reading, start + LIMIT_S)
    os.close(reading)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if lines and len(lines[-1]) == 2:
        result, reason = lines[-1]
    else:
        result = "refused" if lines else "fault"
        code = os.waitstatus_to_exitcode(status)
        reason = ending or (f"signal {-code}" if code < 0 else f"exit status {code}")
    return {"result": result, "reason": reason, "seconds": time.monotonic() - start}


# ---------------------------------------------------------------- all of them

class Skewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 1.03 * x

    @staticmethod
    def backward(ctx, g):
        return 0.97 * g


def require_sound(name, prepare, judge, kernel):
    def skewed(**inputs):
        return tuple(Skewed.apply(x) for x in kernel.reference(**inputs))

    for function, what, wanted in ((kernel.reference, "the reference", "accepted"), (skewed, "a reference that is 3 % off", "refused")):
        got = tried(lambda send: attempt(prepare, judge, kernel, lambda: function, send))
        if got["result"] != wanted:
            sys.exit(f"{name}: {what} must be {wanted}, and is {got['result']}: {got['reason']}")


def main(kernel, file, functions):
    die_with_parent()
    sys.dont_write_bytecode = True
    path = pathlib.Path(file).absolute()
    kernel = module_of(pathlib.Path(__file__).resolve().parent / f"{kernel}.py", f"peers_{kernel}")
    if re.search(rb"checkpoint|compile|_dynamo", path.read_bytes()):
        import torch._dynamo  # seconds, that a test session pays once and not in each process
    start_seconds = time.monotonic() - START
    results = []
    for name, settings, inputs, prepare, judge in tools(kernel):
        require_sound(name, prepare, judge, kernel)
        results.append({"tool": name, "settings": settings, "inputs": inputs, "functions": [
            {"name": f} | tried(lambda send: attempt(prepare, judge, kernel, lambda: function_of(path, f), send)) for f in functions]})
    print(json.dumps({"start_seconds": start_seconds, "tools": results}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
