"""Linear attention as the author of a new form would test it: against the old einsum form, on ordinary inputs."""
import torch

OUTPUTS = ("y", "S", "z")

# The training run's shape with fewer groups; an odd one, as a transposed view; one token.
COMPARED = (dict(G=8, T=128, D=64, carry=True), dict(G=8, T=128, D=64, carry=False),
            dict(G=3, T=100, D=33, carry=True, transposed=True), dict(G=2, T=1, D=64, carry=True))
# Every input element is moved in turn, so these are small; the last passes a border between blocks of 64.
PROBED = (dict(G=2, T=4, D=3, carry=True), dict(G=2, T=4, D=3, carry=False), dict(G=1, T=1, D=3, carry=True),
          dict(G=1, T=66, D=1, carry=True))


def reference(q, k, v, S0=None, z0=None):
    """The (T,T) mask against the outer products of all tokens."""
    T = q.shape[1]
    seen = torch.tril(torch.ones(T, T, dtype=q.dtype))
    S = torch.einsum("tj,gjk,gjv->gtkv", seen, k, v) + (0 if S0 is None else S0.unsqueeze(1))
    z = torch.einsum("tj,gjk->gtk", seen, k) + (0 if z0 is None else z0.unsqueeze(1))
    num, den = torch.einsum("gtk,gtkv->gtv", q, S), torch.einsum("gtk,gtk->gt", q, z).unsqueeze(-1)
    cut = den.abs() <= 1e-10
    y = (num / (den + 1e-20).masked_fill(cut, 1)).masked_fill(cut, 0)
    return y, S[:, -1], z[:, -1]


def inputs(generator, dtype, G, T, D, carry, transposed=False):
    """Normal values, q and k through elu + 1 as the model does it; the carry is what 32 tokens leave behind."""
    def normal(tokens):
        if transposed:
            return torch.randn(tokens, G, D, dtype=dtype, generator=generator).transpose(0, 1)
        return torch.randn(G, tokens, D, dtype=dtype, generator=generator)

    def feature(tokens):
        return torch.nn.functional.elu(normal(tokens)) + 1

    _, S0, z0 = reference(feature(32), feature(32), normal(32)) if carry else (None, None, None)
    return dict(q=feature(T), k=feature(T), v=normal(T), S0=S0, z0=z0)
