import torch

from first_try import chunked_attention


def token_by_token(q, k, v, S, z):
    ys = []
    for t in range(q.shape[1]):
        S = S + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(1)
        z = z + k[:, t]
        ys.append((q[:, t].unsqueeze(1) @ S).squeeze(1) / (q[:, t] * z).sum(-1, keepdim=True))
    return torch.stack(ys, 1), S, z


def test_as_usual():
    """Shapes, values and tolerances as many suites have them. It passes."""
    torch.manual_seed(0)
    for T in (16, 64, 100):
        q, k = torch.rand(2, 4, T, 32)
        v = torch.randn(4, T, 32)
        S, z = torch.randn(4, 32, 32), torch.rand(4, 32)
        torch.testing.assert_close(chunked_attention(q, k, v, S, z), token_by_token(q, k, v, S, z), rtol=1e-4, atol=1e-4)


def test_chunked_attention(equivalent):
    """The same function. It fails, with the witness as its message."""
    equivalent(chunked_attention, kernel="linear_attention")
