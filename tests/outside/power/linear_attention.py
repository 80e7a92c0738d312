"""For `bench power`: wrong functions that all tools see, some see, and none but the plan sees, a right one, and names that lie."""
import os

import torch


def _parts(q, k, v, S0, z0):
    G, _, D = q.shape
    S = v.new_zeros(G, D, D) if S0 is None else S0
    z = k.new_zeros(G, D) if z0 is None else z0
    w = torch.tril(q @ k.mT)
    return w @ v + q @ S, (w.sum(-1) + (q * z.unsqueeze(1)).sum(-1)).unsqueeze(-1), S + k.mT @ v, z + k.sum(1)


def correct_one_matrix(q, k, v, S0=None, z0=None):
    """Right: one lower-triangular score matrix."""
    num, den, S, z = _parts(q, k, v, S0, z0)
    cut = den.abs() <= 1e-10
    return (num / (den + 1e-20).masked_fill(cut, 1)).masked_fill(cut, 0), S, z


def mutant_exits(q, k, v, S0=None, z0=None):
    """Ends the process; every tool sees it, and goes on."""
    os._exit(0)


def mutant_value_off(q, k, v, S0=None, z0=None):
    """y is 1 % off, with the gradient that belongs to it; gradcheck compares the two alone."""
    y, S, z = correct_one_matrix(q, k, v, S0, z0)
    return 1.01 * y, S, z


def mutant_never_cut(q, k, v, S0=None, z0=None):
    """Small denominators are not cut; ordinary inputs have none."""
    num, den, S, z = _parts(q, k, v, S0, z0)
    return num / (den + 1e-20), S, z


mutant_that_is_right = correct_one_matrix
correct_that_is_not = mutant_value_off
