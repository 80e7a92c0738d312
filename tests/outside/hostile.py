"""Candidates that misbehave, each a function of linear_attention's signature. tests/harness/outside_test.cpp says of each
what the verdict must name. What a right answer takes is computed by `right`."""
import math
import os
import random
import signal
import subprocess
import sys
import time

import numpy
import torch
import torch.utils.checkpoint


def right(q, k, v, S0=None, z0=None):
    """Right: one lower-triangular score matrix."""
    G, _, D = q.shape
    S = v.new_zeros(G, D, D) if S0 is None else S0
    z = k.new_zeros(G, D) if z0 is None else z0
    w = torch.tril(q @ k.mT)
    den = w.sum(-1) + (q * z.unsqueeze(1)).sum(-1)
    keep = den.abs() > 1e-10
    safe = torch.where(keep, den + 1e-20, torch.ones_like(den)).unsqueeze(-1)
    y = torch.where(keep.unsqueeze(-1), (w @ v + q @ S) / safe, torch.zeros_like(v))
    return y, S + k.mT @ v, z + k.sum(1)


def raises(q, k, v, S0=None, z0=None):
    raise ValueError(f"no kernel for {tuple(q.shape)} today")


def raises_in_backward(q, k, v, S0=None, z0=None):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise LookupError("lost the way back")
    y, S, z = right(q, k, v, S0, z0)
    return Bad.apply(y), S, z


def returns_none(q, k, v, S0=None, z0=None):
    pass


def returns_list(q, k, v, S0=None, z0=None):
    return list(right(q, k, v, S0, z0))


def returns_two(q, k, v, S0=None, z0=None):
    return right(q, k, v, S0, z0)[:2]


def returns_float(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y, S, 1.5


def wrong_dtype(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y.half(), S, z


def wrong_shape(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y.unsqueeze(0), S, z


def wrong_device(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y.to("meta"), S, z


def sparse(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y, S, z.to_sparse()


class Lazy(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("computed only when somebody looks")


def tensor_subclass(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return torch.Tensor._make_wrapper_subclass(Lazy, y.shape, dtype=y.dtype), S, z


def aliases_input(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return q.copy_(y) if False else (y * 0 + v if v.shape[1] != 1 else v), S, z


def returns_input(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y, S, z if z0 is None else z0


_buffer = {}


def view_that_changes(q, k, v, S0=None, z0=None):
    """Its y is a view of a buffer that the next call of the shape overwrites."""
    y, S, z = right(q, k, v, S0, z0)
    if y.requires_grad:
        return y, S, z
    held = _buffer.setdefault((y.shape, y.dtype), torch.empty_like(y))
    held.copy_(y)
    return held.view(y.shape), S, z


def not_a_number(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return y / 0 * 0, S, z


def exits(q, k, v, S0=None, z0=None):
    sys.exit(0)


def exits_at_once(q, k, v, S0=None, z0=None):
    os._exit(0)


def segfaults(q, k, v, S0=None, z0=None):
    import ctypes
    ctypes.string_at(8)


def loops(q, k, v, S0=None, z0=None):
    while True:
        pass


def leaves_a_child(q, k, v, S0=None, z0=None):
    subprocess.Popen(["sleep", "987654"], start_new_session=True)
    os._exit(3)


def kills_its_parents(q, k, v, S0=None, z0=None):
    """Its starter, and the process that loaded it: the parent of its parent."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        grandparent = int(stat.read().rsplit(")", 1)[1].split()[1])
    os.kill(grandparent, signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
    return right(q, k, v, S0, z0)


def allocates_100_gb(q, k, v, S0=None, z0=None):
    torch.empty(25_000_000_000)
    return right(q, k, v, S0, z0)


def allocates_100_gb_in_python(q, k, v, S0=None, z0=None):
    bytearray(100_000_000_000)
    return right(q, k, v, S0, z0)


def floods(q, k, v, S0=None, z0=None):
    line = "all work and no play " * 50 + "\n"
    for _ in range(200):
        sys.stdout.write(line)
    raise OSError("done with writing")


_first = {}


def cached_answer(q, k, v, S0=None, z0=None):
    if q.requires_grad:
        return right(q, k, v, S0, z0)
    key = (q.shape, q.dtype, S0 is None, z0 is None)
    if key not in _first:
        _first[key] = right(q, k, v, S0, z0)
    return tuple(x.clone() for x in _first[key])


_calls = [0]


def depends_on_order(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    _calls[0] += 1
    return y * (1 + 1e-3 * (_calls[0] % 2 == 0)), S, z


def depends_on_requires_grad(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return (y if q.requires_grad else y * 1.001), S, z


def depends_on_threads(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    return (y if torch.get_num_threads() == 1 else y * 1.001), S, z


def patches_torch(q, k, v, S0=None, z0=None):
    result = right(q, k, v, S0, z0)
    torch.matmul = lambda a, b: a * b
    return result


def patches_tensor(q, k, v, S0=None, z0=None):
    result = right(q, k, v, S0, z0)
    torch.Tensor.clone = lambda self: self
    return result


def modifies_input(q, k, v, S0=None, z0=None):
    result = right(q, k, v, S0, z0)
    with torch.no_grad():
        q.data.mul_(2)
    return result


def seeds(q, k, v, S0=None, z0=None):
    torch.manual_seed(0)
    return right(q, k, v, S0, z0)


def sets_threads(q, k, v, S0=None, z0=None):
    torch.set_num_threads(3)
    return right(q, k, v, S0, z0)


def sleeps(q, k, v, S0=None, z0=None):
    time.sleep(1000)


def other_signature(x, y):
    """Of another kernel."""


not_a_function = 3


def seeds_python(q, k, v, S0=None, z0=None):
    random.seed(0)
    return right(q, k, v, S0, z0)


def seeds_numpy(q, k, v, S0=None, z0=None):
    numpy.random.seed(0)
    return right(q, k, v, S0, z0)


def patches_optimizer(q, k, v, S0=None, z0=None):
    torch.optim.SGD.step = lambda self, closure=None: None
    return right(q, k, v, S0, z0)


def patches_math(q, k, v, S0=None, z0=None):
    math.exp = math.sin
    return right(q, k, v, S0, z0)


def looks_for_anomalies(q, k, v, S0=None, z0=None):
    torch.autograd.set_detect_anomaly(True)
    return right(q, k, v, S0, z0)


def moves_away(q, k, v, S0=None, z0=None):
    os.chdir("/")
    return right(q, k, v, S0, z0)


def sets_a_gradient(q, k, v, S0=None, z0=None):
    if q.requires_grad and q.is_leaf:
        q.grad = torch.zeros_like(q)
    return right(q, k, v, S0, z0)


def right_by_reentrant_checkpoint(q, k, v, S0=None, z0=None):
    """Right: its scores are computed again in the backward, by a checkpoint that only backward() can run through."""
    return torch.utils.checkpoint.checkpoint(right, q, k, v, S0, z0, use_reentrant=True)
