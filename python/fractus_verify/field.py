"""Runs a function of torch over a finite field, in which nothing rounds: two programs of one algebra agree there to the last bit, and two
of different algebra do not, but for a chance of degree / (2^61-1) a random input.

    from fractus_verify import field
    field.use(61)                                   # GF(2^61-1), floats are float64; 31: GF(2^31-1), float32 and float64
    x = field.random(80, 128, 64).requires_grad_()
    y = my_attention(x, ...)                        # as it is: autograd, autograd.Function and checkpoint included
    field.residues(y)                               # int64 on the CPU
    field.remarks()                                 # casts, comparisons, branches, and what ended the run

x.to("field") and device="field" work too: each float is then the rational that it stands for, 0.1 a tenth. What has no meaning over a field
(exp, sqrt, a sort) raises an error that names the operation and its place, and a division by 0 asks for another draw."""
from __future__ import annotations

import ctypes
import json
import pathlib
import subprocess

import torch

from . import field_device
from .command import CommandError, launcher

__all__ = ["bits", "forget", "random", "remarks", "residues", "tensor", "use"]


def _load() -> None:
    root = launcher().parent
    library = root / "build" / "release" / "bin" / "fractus-field.so"
    if not library.is_file():
        _build(root)
    wanted, got = _torch_of(root), torch.__version__.partition("+")[0]
    if wanted != got:
        raise CommandError(f"the device 'field' of '{root}' is built for torch {wanted}, and this Python has torch {got}: install torch "
                           f"{wanted}, or use the Python of the checkout, {root / '.venv' / 'bin' / 'python'}")
    torch.ops.load_library(str(library))
    field_device.register()
    _tell_places(library)


def _build(root: pathlib.Path) -> None:
    folder = root / "build" / "release"
    if not (folder / "build.ninja").is_file():
        raise CommandError(f"the device 'field' is not built in '{root}': run '{root / 'fractus-verify'} list' once, which sets the checkout up")
    built = subprocess.run(["cmake", "--build", str(folder), "--target", "fractus-field"], capture_output=True, text=True)
    if built.returncode:
        raise CommandError(f"the device 'field' does not build in '{root}'; the last lines:\n{built.stdout[-2000:]}{built.stderr[-2000:]}")


def _torch_of(root: pathlib.Path) -> str:
    scope: dict[str, str] = {}
    exec((root / ".venv" / "torch" / "version.py").read_text(), scope)
    return scope["__version__"].partition("+")[0]


def _tell_places(library: pathlib.Path) -> None:
    """The library asks for the place in the source at each remark."""
    global _place  # ctypes needs it to live on

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
    def _place(buffer, size):
        text = field_device.place().encode()[:size - 1]
        ctypes.memmove(buffer, text + b"\0", len(text) + 1)

    ctypes.CDLL(str(library)).fractus_field_place(_place)


def use(bits: int) -> None:
    """The field of this process: 31 or 61. Tensors that were made over the other one are refused from then on."""
    torch.ops.fractus_field.use(bits)


def bits() -> int:
    return torch.ops.fractus_field.bits()


def tensor(residues: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor of the device with these elements: int64 on the CPU, from 0 to 2^bits-2. The dtype is float32 at 31 bits, where float64 can
    be asked for, and float64 at 61."""
    return torch.ops.fractus_field.tensor(residues, dtype or (torch.float32 if bits() == 31 else torch.float64))


def residues(x: torch.Tensor) -> torch.Tensor:
    """The elements of a float tensor of the device, as int64 on the CPU."""
    return torch.ops.fractus_field.residues(x.detach())


def random(*shape: int, dtype: torch.dtype | None = None, seed: int | None = None) -> torch.Tensor:
    """Independent elements, each residue equally likely."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return tensor(torch.randint(0, 2**bits() - 1, shape, dtype=torch.int64, generator=generator), dtype)


def remarks() -> list[dict[str, str | int]]:
    """What was recorded since forget(): dicts of kind (cast, comparison, branch, non-algebraic, non-deterministic), operation, place, detail
    and count."""
    return json.loads(torch.ops.fractus_field.remarks())


def forget() -> None:
    torch.ops.fractus_field.forget()


_load()
