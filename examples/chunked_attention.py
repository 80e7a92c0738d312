"""Causal linear attention in chunks, in plain torch."""
import torch
import torch.nn.functional as F

CHUNK = 16


def chunked_attention(q, k, v, S0=None, z0=None):
    """Scores inside of a chunk; what the chunks before it sum up to comes from S and z."""
    G, T, D = q.shape
    S0 = q.new_zeros(G, D, D) if S0 is None else S0
    z0 = q.new_zeros(G, D) if z0 is None else z0

    chunks = -(-T // CHUNK)
    q, k, v = (F.pad(x, (0, 0, 0, chunks * CHUNK - T)).reshape(G, chunks, CHUNK, D) for x in (q, k, v))
    S = torch.cat([S0.unsqueeze(1), k.mT @ v], 1).cumsum(1)  # before each chunk, and after the last
    z = torch.cat([z0.unsqueeze(1), k.sum(2)], 1).cumsum(1)

    scores = torch.tril(q @ k.mT)
    num = scores @ v + q @ S[:, :-1]
    den = scores.sum(-1, keepdim=True) + q @ z[:, :-1].unsqueeze(-1)
    keep = den.abs() > 1e-10
    y = torch.where(keep, num / torch.where(keep, den + 1e-20, 1), 0)
    return y.reshape(G, chunks * CHUNK, D)[:, :T], S[:, -1], z[:, -1]
