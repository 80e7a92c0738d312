"""A small battery: what is right is right in two ways, what is wrong is wrong in two."""
import torch
import torch.utils.checkpoint


def _parts(q, k, v, S0, z0):
    G, _, D = q.shape
    S = v.new_zeros(G, D, D) if S0 is None else S0
    z = k.new_zeros(G, D) if z0 is None else z0
    w = torch.tril(q @ k.mT)
    return w @ v + q @ S, w.sum(-1) + (q * z.unsqueeze(1)).sum(-1), S + k.mT @ v, z + k.sum(1)


def _quotient(num, den):
    keep = den.abs() > 1e-10
    safe = torch.where(keep, den + 1e-20, torch.ones_like(den))
    return torch.where(keep.unsqueeze(-1), num / safe.unsqueeze(-1), torch.zeros_like(num))


def correct_one_matrix(q, k, v, S0=None, z0=None):
    """Right: one lower-triangular score matrix."""
    num, den, S, z = _parts(q, k, v, S0, z0)
    return _quotient(num, den), S, z


def correct_checkpointed(q, k, v, S0=None, z0=None):
    """Right: the same, recomputed in backward."""
    return torch.utils.checkpoint.checkpoint(correct_one_matrix, q, k, v, S0, z0, use_reentrant=False)


def mutant_z_forgets_z0(q, k, v, S0=None, z0=None):
    """The returned z starts from zero; shows with a z0."""
    num, den, S, _ = _parts(q, k, v, S0, z0)
    return _quotient(num, den), S, k.sum(1)


def mutant_raises_at_one_token(q, k, v, S0=None, z0=None):
    """Refuses what the contract allows; shows at T = 1."""
    if q.shape[1] == 1:
        raise ValueError("too short")
    return correct_one_matrix(q, k, v, S0, z0)
