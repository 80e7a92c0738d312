"""Wrong where a kernel takes the path that it was written for: at the training run's length and width alone."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from hostile import right

buffers = {}


def at_live(q):
    return q.shape[1] >= 128 and q.shape[2] >= 64


def off(result, wrong):
    y, S, z = result
    return (y * (1 + 2**-9) if wrong else y), S, z


def correct_reference(q, k, v, S0=None, z0=None):
    return right(q, k, v, S0, z0)


def mutant_strided(q, k, v, S0=None, z0=None):
    return off(right(q, k, v, S0, z0), at_live(q) and not q.is_contiguous())


def mutant_without_graph(q, k, v, S0=None, z0=None):
    return off(right(q, k, v, S0, z0), at_live(q) and not torch.is_grad_enabled())


def mutant_z0_alone(q, k, v, S0=None, z0=None):
    return off(right(q, k, v, S0, z0), at_live(q) and S0 is None and z0 is not None)


def mutant_buffer_without_graph(q, k, v, S0=None, z0=None):
    y, S, z = right(q, k, v, S0, z0)
    if q.shape[1] > 64 and not y.requires_grad:
        y = buffers.setdefault((y.shape, y.dtype), torch.empty_like(y)).copy_(y)
    return y, S, z


def mutant_wide_and_long(q, k, v, S0=None, z0=None):
    return off(right(q, k, v, S0, z0), q.shape[1] > 16 and q.shape[2] > 64)


def mutant_256_tokens(q, k, v, S0=None, z0=None):
    return off(right(q, k, v, S0, z0), q.shape[1] == 256)


def mutant_state_alone_tracks_gradients(q, k, v, S0=None, z0=None):
    tracked = [x is not None and x.requires_grad for x in (q, k, v, S0, z0)]
    return off(right(q, k, v, S0, z0), tracked == [False, False, False, True, True])
