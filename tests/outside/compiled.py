"""A form that is given to torch.compile when its file is loaded."""
import torch

_product = torch.compile(lambda a, b: torch.einsum("gmk,gkn->gmn", a, b))


def matmul(a, b):
    return _product(a, b)
