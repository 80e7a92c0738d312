"""Causal linear attention in chunks, in plain torch: a first try, which is wrong."""
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
    S_of, z_of = k.mT @ v, k.sum(2)  # of each chunk
    S = S0.unsqueeze(1) + S_of.cumsum(1) - S_of  # of what is before each chunk
    z = z0.unsqueeze(1) + z_of.cumsum(1) - z_of

    scores = torch.tril(q @ k.mT)
    num = scores @ v + q @ S
    den = scores.sum(-1, keepdim=True) + q @ z.unsqueeze(-1)
    keep = den.abs() > 1e-10
    y = torch.where(keep, num / torch.where(keep, den + 1e-20, 1), 0)
    return y.reshape(G, chunks * CHUNK, D)[:, :T], S0 + S_of.sum(1), z0 + z_of.sum(1)
