"""Forms of the kernels that the command `identity` alone judges, right and wrong ones."""
import torch


# ---- matmul(a (G,M,K), b (G,K,N)) -> c

def matmul_einsum(a, b):
    return torch.einsum("gmk,gkn->gmn", a, b)


def matmul_in_blocks(a, b):
    """The contraction 64 terms at a time, into one accumulator."""
    c = a.new_zeros(a.shape[0], a.shape[1], b.shape[2])
    for i in range(0, a.shape[2], 64):
        c = torch.baddbmm(c, a[..., i:i + 64], b[:, i:i + 64])
    return c


def matmul_strassen(a, b):
    """One level of Strassen's products, where all extents are even."""
    G, M, K, N = *a.shape, b.shape[2]
    if M % 2 or K % 2 or N % 2:
        return a @ b
    a11, a12, a21, a22 = a[:, :M // 2, :K // 2], a[:, :M // 2, K // 2:], a[:, M // 2:, :K // 2], a[:, M // 2:, K // 2:]
    b11, b12, b21, b22 = b[:, :K // 2, :N // 2], b[:, :K // 2, N // 2:], b[:, K // 2:, :N // 2], b[:, K // 2:, N // 2:]
    m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    m4, m5, m6, m7 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    top = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 2)
    return torch.cat([top, torch.cat([m2 + m4, m1 - m2 + m3 + m6], 2)], 1)


def matmul_own_backward(a, b):
    """Its backward names no device for what it makes."""
    return _OwnBackward.apply(a, b)


class _OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.ones(a.shape[0], 1, 1, dtype=a.dtype) * (g @ b.transpose(1, 2)), a.transpose(1, 2) @ g


def matmul_loses_tail(a, b):
    """WRONG: the last terms of a contraction that is no multiple of 8 are lost."""
    K = a.shape[2] // 8 * 8 or a.shape[2]
    return a[..., :K] @ b[:, :K]


def matmul_of_positive(a, b):
    """WRONG: what is negative counts as 0; a generic point is above 0."""
    return torch.where(a > 0, a, torch.zeros_like(a)) @ b


class _HalfAdjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.transpose(1, 2), a.transpose(1, 2) @ g / 2


def matmul_half_adjoint(a, b):
    """WRONG: the gradient of b is half of what it should be."""
    return _HalfAdjoint.apply(a, b)


# ---- experts(h, weights, experts, W1, b1, W2, b2) -> out

def experts_gathered(h, weights, experts, W1, b1, W2, b2):
    inner = torch.einsum("nd,nkdf->nkf", h, W1[experts]) + b1[experts]
    out = torch.einsum("nkf,nkfd->nkd", inner, W2[experts]) + b2[experts]
    return (weights.unsqueeze(-1) * out).sum(1)


def experts_dense(h, weights, experts, W1, b1, W2, b2):
    """All experts of all tokens, then those that were chosen."""
    inner = torch.einsum("nd,edf->nef", h, W1) + b1
    out = torch.einsum("nef,efd->ned", inner, W2) + b2
    chosen = torch.gather(out, 1, experts.unsqueeze(-1).expand(-1, -1, out.shape[2]))
    return torch.einsum("nk,nkd->nd", weights, chosen)


def experts_scattered(h, weights, experts, W1, b1, W2, b2):
    """One weight for each expert, 0 where it is not chosen; the bias of the second map once."""
    spread = torch.zeros(h.shape[0], W1.shape[0], dtype=h.dtype, device=h.device).scatter_add(1, experts, weights)
    inner = torch.einsum("nd,edf->nef", h, W1) + b1
    return torch.einsum("ne,nef,efd->nd", spread, inner, W2) + spread @ b2


def experts_bias_unweighted(h, weights, experts, W1, b1, W2, b2):
    """WRONG: b2 is added once for each expert, without its weight."""
    inner = torch.einsum("nd,nkdf->nkf", h, W1[experts]) + b1[experts]
    out = torch.einsum("nkf,nkfd->nkd", inner, W2[experts])
    return (weights.unsqueeze(-1) * out).sum(1) + b2[experts].sum(1)


def experts_router_detached(h, weights, experts, W1, b1, W2, b2):
    """WRONG: no gradient reaches the weights."""
    return experts_gathered(h, weights.detach(), experts, W1, b1, W2, b2)


# ---- block_attention(q, k, v, mix, S0=None, z0=None) -> (y, S, z)

def _attention(q, k, v, S0, z0):
    """By group: q, k, v (G,T,D)."""
    G, T, D = q.shape
    S = q.new_zeros(G, D, D) if S0 is None else S0
    z = q.new_zeros(G, D) if z0 is None else z0
    scores = (q @ k.transpose(1, 2)).tril()
    num = scores @ v + q @ S
    den = scores.sum(-1, keepdim=True) + (q @ z.unsqueeze(-1))
    keep = den.abs() > 1e-10
    y = torch.where(keep, num / torch.where(keep, den + 1e-20, torch.ones_like(den)), torch.zeros_like(num))
    return y, S + k.transpose(1, 2) @ v, z + k.sum(1)


def _block_attention(q, k, v, mix, S0, z0, mean):
    B, L, T, H, D = q.shape
    flat = lambda x: x.movedim(-2, -3).reshape(-1, T, D)
    wide = lambda x: None if x is None else x.unsqueeze(1).expand(B, L, *x.shape[1:]).reshape(B * L * H, *x.shape[2:])
    y, S, z = _attention(flat(q), flat(k), flat(v.unsqueeze(1).expand(B, L, T, H, D)), wide(S0), wide(z0))
    y = torch.einsum("l,blhtd->bthd", mix, y.reshape(B, L, H, T, D))
    return y, mean(S.reshape(B, L, H, D, D)), mean(z.reshape(B, L, H, D))


def block_attention_by_groups(q, k, v, mix, S0=None, z0=None):
    return _block_attention(q, k, v, mix, S0, z0, lambda x: x.mean(1))


def block_attention_level_zero(q, k, v, mix, S0=None, z0=None):
    """WRONG: the carry is that of the first level."""
    return _block_attention(q, k, v, mix, S0, z0, lambda x: x[:, 0].clone())


def block_attention_mix_twice(q, k, v, mix, S0=None, z0=None):
    """WRONG: the carry is mixed as y is, and not the mean."""
    return _block_attention(q, k, v, mix, S0, z0, lambda x: torch.einsum("l,bl...->b...", mix, x))
