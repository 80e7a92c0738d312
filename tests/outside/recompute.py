"""Functions that run `plain` again in their backward, as torch.utils.checkpoint does, and three that do so wrongly."""
import torch
from torch.utils.checkpoint import checkpoint


def plain(q, k, v, S0=None, z0=None):
    G, T, D = q.shape
    S0 = q.new_zeros(G, D, D) if S0 is None else S0
    z0 = q.new_zeros(G, D) if z0 is None else z0
    scores = torch.tril(q @ k.transpose(1, 2))
    den = scores.sum(-1, keepdim=True) + q @ z0.unsqueeze(-1)
    safe = den.abs() > 1e-10
    y = (scores @ v + q @ S0) / (torch.where(safe, den, torch.ones_like(den)) + 1e-20)
    return torch.where(safe, y, torch.zeros_like(y)), S0 + k.transpose(1, 2) @ v, z0 + k.sum(1)


def checkpointed(q, k, v, S0=None, z0=None):
    return checkpoint(plain, q, k, v, S0, z0, use_reentrant=False)


def keeps_everything(q, k, v, S0=None, z0=None):
    """Nothing is run again, so nothing is saved."""
    return plain(q, k, v, S0, z0)


def other_bits(q, k, v, S0=None, z0=None):
    """The second run sums in another order: right within any bound, and no longer the same numbers."""
    return checkpoint(lambda q, k, v, S0, z0: plain(q.flip(-1), k.flip(-1), v, None if S0 is None else S0.flip(1), None if z0 is None else z0.flip(-1))[:1]
                      + plain(q, k, v, S0, z0)[1:], q, k, v, S0, z0, use_reentrant=False)


class _Latest(torch.autograd.Function):
    kept = []

    @staticmethod
    def forward(ctx, *inputs):
        _Latest.kept = inputs
        return plain(*inputs)

    @staticmethod
    def backward(ctx, *cotangents):
        inputs = [x.detach().requires_grad_() for x in _Latest.kept]
        with torch.enable_grad():
            outputs = plain(*inputs)
        return torch.autograd.grad(outputs, inputs, cotangents)


def runs_the_latest(q, k, v, S0=None, z0=None):
    """What is run again is the latest call, in one place for all of them: wrong where another forward lies between."""
    G, _, D = q.shape
    return _Latest.apply(q, k, v, q.new_zeros(G, D, D) if S0 is None else S0, q.new_zeros(G, D) if z0 is None else z0)
