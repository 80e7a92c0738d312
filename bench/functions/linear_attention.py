"""What `bench power` measures the tools on, where no other file is given. Wrong in the ways in which forms of linear attention
were found wrong elsewhere, and right in four orders of evaluation."""
import torch

BLOCK = 32


def _start(q, k, v, S0, z0):
    G, _, D = q.shape
    return v.new_zeros(G, D, D) if S0 is None else S0, k.new_zeros(G, D) if z0 is None else z0


def _row(x, z):
    return (x * z.unsqueeze(1)).sum(-1)


def _quotient(num, den, epsilon=1e-20, least=1e-10):
    cut = (den.abs() <= least).unsqueeze(-1)
    return (num / (den + epsilon).unsqueeze(-1).masked_fill(cut, 1)).masked_fill(cut, 0)


def _fresh(final, start):
    return final.clone() if final is start else final  # without a token the state is a copy


def _chunked(q, k, v, S0, z0, quotient=_quotient, hand_over=lambda S: S, diagonal=0):
    """Right as it stands; the arguments are where it can be made wrong."""
    S, z = _start(q, k, v, S0, z0)
    y = [v[:, :0]]
    for t in range(0, q.shape[1], BLOCK):
        a, b, c = q[:, t:t + BLOCK], k[:, t:t + BLOCK], v[:, t:t + BLOCK]
        scores = torch.tril(a @ b.mT, diagonal)
        y.append(quotient(scores @ c + a @ S, scores.sum(-1) + _row(a, z)))
        S, z = hand_over(S + b.mT @ c), z + b.sum(1)
    return torch.cat(y, 1), _fresh(S, S0), _fresh(z, z0)


def correct_chunked(q, k, v, S0=None, z0=None):
    """Right: blocks of 32."""
    return _chunked(q, k, v, S0, z0)


def correct_scores(q, k, v, S0=None, z0=None):
    """Right: one matrix of scores."""
    S, z = _start(q, k, v, S0, z0)
    scores = torch.tril(q @ k.mT)
    return _quotient(scores @ v + q @ S, scores.sum(-1) + _row(q, z)), S + k.mT @ v, z + k.sum(1)


def correct_prefix_sums(q, k, v, S0=None, z0=None):
    """Right: the states of all tokens at once."""
    S, z = _start(q, k, v, S0, z0)
    states = S.unsqueeze(1) + (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(1)
    sums = z.unsqueeze(1) + k.cumsum(1)
    y = _quotient((q.unsqueeze(-2) @ states).squeeze(-2), (q * sums).sum(-1))
    return y, S + k.mT @ v, z + k.sum(1)


def correct_in_double(q, k, v, S0=None, z0=None):
    """Right: computed in float64 and rounded once."""
    wide = (None if x is None else x.double() for x in (q, k, v, S0, z0))
    return tuple(x.to(q.dtype) for x in _chunked(*wide))


def mutant_does_not_see_itself(q, k, v, S0=None, z0=None):
    """The mask lacks its diagonal."""
    return _chunked(q, k, v, S0, z0, diagonal=-1)


def mutant_starts_from_zero(q, k, v, S0=None, z0=None):
    """A carry is taken and not read; the returned state lacks it too."""
    return _chunked(q, k, v, None if S0 is None else 0 * S0, None if z0 is None else 0 * z0)


def mutant_carry_without_gradient(q, k, v, S0=None, z0=None):
    """y is right, and lets no gradient into S0."""
    y, _, _ = _chunked(q, k, v, None if S0 is None else S0.detach(), z0)
    _, S, z = _chunked(q, k, v, S0, z0)
    return y, S, z


def mutant_final_state_without_gradient(q, k, v, S0=None, z0=None):
    """What the next chunk of the sequence sends back to the returned S is dropped."""
    y, S, z = _chunked(q, k, v, S0, z0)
    return y, S.detach() + 0 * S, z


def mutant_short_block_not_in_state(q, k, v, S0=None, z0=None):
    """Tokens behind the last whole block reach y and not the returned state."""
    y, _, _ = _chunked(q, k, v, S0, z0)
    whole = q.shape[1] // BLOCK * BLOCK
    return y, *_chunked(q[:, :whole], k[:, :whole], v[:, :whole], S0, z0)[1:]


def mutant_state_in_bfloat16(q, k, v, S0=None, z0=None):
    """From block to block S keeps eight bits of its significand."""
    return _chunked(q, k, v, S0, z0, hand_over=lambda S: S + (S.bfloat16().to(S.dtype) - S).detach())


def mutant_epsilon_of_a_layer_norm(q, k, v, S0=None, z0=None):
    """1e-5 in the place of 1e-20."""
    return _chunked(q, k, v, S0, z0, quotient=lambda num, den: _quotient(num, den, epsilon=1e-5))


def mutant_cut_at_1e_4(q, k, v, S0=None, z0=None):
    """Small denominators are cut that should not be."""
    return _chunked(q, k, v, S0, z0, quotient=lambda num, den: _quotient(num, den, least=1e-4))


def mutant_denominator_clamped(q, k, v, S0=None, z0=None):
    """Takes denominators for positive."""
    return _chunked(q, k, v, S0, z0, quotient=lambda num, den: _quotient(num, den.clamp(min=0)))


def mutant_nan_gradient_at_a_cut(q, k, v, S0=None, z0=None):
    """Cut rows are divided first, and their gradient is 0 times infinity."""
    def quotient(num, den):
        return (num / den.unsqueeze(-1)).masked_fill((den.abs() <= 1e-10).unsqueeze(-1), 0)
    return _chunked(q, k, v, S0, z0, quotient=quotient)


def mutant_writes_to_z0(q, k, v, S0=None, z0=None):
    """The carry is updated in place."""
    y, S, z = _chunked(q, k, v, S0, z0)
    if z0 is not None:
        z0.data.copy_(z.detach())
    return y, S, z


def mutant_dense_strides(q, k, v, S0=None, z0=None):
    """Reads v as if it were contiguous."""
    G, T, D = v.shape
    return _chunked(q, k, torch.as_strided(v, (G, T, D), (T * D, D, 1)) if 0 not in v.stride() else v, S0, z0)
