"""Writes two AOTInductor packages into the folder given: right.pt2, and no_carry.pt2, whose output z leaves out z0."""
import pathlib
import sys

import torch


class Attention(torch.nn.Module):
    def __init__(self, carries):
        super().__init__()
        self.carries = carries

    def forward(self, q, k, v, S0, z0):
        scores = torch.tril(torch.einsum("gtd,gjd->gtj", q, k))
        numerator = torch.einsum("gtj,gjm->gtm", scores, v) + torch.einsum("gtp,gpm->gtm", q, S0)
        den = (q * (k.cumsum(1) + z0.unsqueeze(1))).sum(-1)
        cut = den.abs() <= 1e-10
        y = torch.where(cut.unsqueeze(-1), 0.0, numerator / torch.where(cut, 1.0, den + 1e-20).unsqueeze(-1))
        return y, S0 + torch.einsum("gtp,gtm->gpm", k, v), k.sum(1) + (z0 if self.carries else 0)


G, T, D = (torch.export.Dim(name) for name in "GTD")
inputs = (*(torch.rand(3, 5, 7) for _ in range(3)), torch.rand(3, 7, 7), torch.rand(3, 7))
extents = ({0: G, 1: T, 2: D},) * 3 + ({0: G, 1: D, 2: D}, {0: G, 1: D})
for name, carries in (("right", True), ("no_carry", False)):
    program = torch.export.export(Attention(carries), inputs, dynamic_shapes=extents)
    torch._inductor.aoti_compile_and_package(program, package_path=str(pathlib.Path(sys.argv[1]) / f"{name}.pt2"))
