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


def below_rounding(q, k, v, S0=None, z0=None):
    """Another function, which no float tells from the right one."""
    y, S, z = _plain(q, k, v, S0, z0)
    return y, S + 1e-300 * S, z


def other_device(q, k, v, S0=None, z0=None):
    """Makes its buffers where a function on the CPU would, and names no device."""
    G, T, D = q.shape
    mask = torch.tril(torch.ones(T, T, dtype=q.dtype))
    scores = (q @ k.transpose(1, 2)) * mask
    S = torch.zeros(G, D, D, dtype=q.dtype) if S0 is None else S0
    z = torch.zeros(G, D, dtype=q.dtype) if z0 is None else z0
    num = scores @ v + q @ S
    den = scores.sum(-1, keepdim=True) + q @ z.unsqueeze(-1)
    y = torch.where(den.abs() > 1e-10, num / torch.where(den.abs() > 1e-10, den + 1e-20, torch.ones_like(den)), torch.zeros_like(num))
    return y, S + k.transpose(1, 2) @ v, z + k.sum(1)


def negative_doubled(q, k, v, S0=None, z0=None):
    """WRONG: y is doubled where it is negative."""
    y, S, z = _plain(q, k, v, S0, z0)
    return torch.where(y.abs() == y, y, y * 2), S, z


def elsewhere(q, k, v, S0=None, z0=None):
    """WRONG on every device but the field's."""
    y, S, z = _plain(q, k, v, S0, z0)
    return (y if y.device.type == "field" else y * 2), S, z
