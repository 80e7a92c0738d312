"""Linear attention with steps that the algebra does not hold, one a function, for the tests of the audit."""
import torch


def _plain(q, k, v, S0, z0):
    G, T, D = q.shape
    S = q.new_zeros(G, D, D) if S0 is None else S0
    z = q.new_zeros(G, D) if z0 is None else z0
    S_t = S[:, None] + (k[..., :, None] * v[..., None, :]).cumsum(1)
    z_t = z[:, None] + k.cumsum(1)
    num = (q[..., :, None] * S_t).sum(2)
    den = (q * z_t).sum(-1, keepdim=True)
    safe = torch.where(den.abs() > 1e-10, den + 1e-20, torch.ones_like(den))
    y = torch.where(den.abs() > 1e-10, num / safe, torch.zeros_like(num))
    return y, (S_t[:, -1] if T else S).clone(), (z_t[:, -1] if T else z).clone()


def plain(q, k, v, S0=None, z0=None):
    return _plain(q, k, v, S0, z0)


def half_inside(q, k, v, S0=None, z0=None):
    return _plain(q.to(torch.bfloat16).to(q.dtype), k, v, S0, z0)


def branches(q, k, v, S0=None, z0=None):
    if q.numel() and q.abs().max().item() > 1e6:
        q = q / 2 * 2
    return _plain(q, k, v, S0, z0)


def exponential(q, k, v, S0=None, z0=None):
    return _plain(q + 0 * torch.exp(-q.abs()), k, v, S0, z0)


def noisy(q, k, v, S0=None, z0=None):
    return _plain(q + 0 * torch.rand(q.shape, dtype=q.dtype, generator=torch.Generator().manual_seed(1)), k, v, S0, z0)


class _Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return torch.tanh(g) * 0 + g


def in_backward(q, k, v, S0=None, z0=None):
    return _plain(_Identity.apply(q), k, v, S0, z0)


class _Caught(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        try:
            return x + 0 * torch.round(x)
        except Exception:
            return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


def catches(q, k, v, S0=None, z0=None):
    return _plain(_Caught.apply(q), k, v, S0, z0)
