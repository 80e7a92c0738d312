"""What torch asks of a device in Python, for the device `field`. It needs torch and the loaded library fractus-field.so, and nothing of this
package: the worker's Python runs this file by itself."""
import os
import sys
import types

import torch

NAME = "field"


def place() -> str:
    """Where the program stands, "attention.py:12 in blocks": the innermost Python frame outside of torch and of this folder. Empty where there
    is none, as in a backward that torch does by itself."""
    inside = (torch.__path__[0] + os.sep, os.path.dirname(__file__) + os.sep, "<")
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(inside):
            return f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def register() -> None:
    """torch.field, which torch.utils.checkpoint, torch.random and torch.autocast look for, and how a tensor is printed. Once a process."""
    if hasattr(torch, NAME):
        return
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
    _print_residues()


class _Current:
    """`with torch.field.device(0):`, of one device alone."""

    def __init__(self, device=None):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


def _module() -> types.ModuleType:
    module = types.ModuleType(f"torch.{NAME}", "The device whose numbers are a finite field.")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module.synchronize = lambda device=None: None
    module.device = _Current
    # There is no randomness on the device: a draw on it ends the run, so its generator has no state to keep.
    module._is_in_bad_fork = lambda: False
    module.manual_seed = module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device=None: torch.empty(0, dtype=torch.uint8)
    module.set_rng_state = lambda state, device=None: None
    # torch.autocast asks, also where it is off. No operation of the device has a narrower form.
    module.get_amp_supported_dtype = lambda: []
    return module


def _print_residues() -> None:
    """torch prints a tensor by its floats, which these have none of: they print as residues."""
    of_torch = torch._tensor_str._str

    def text(self, *, tensor_contents=None):
        if tensor_contents is not None or self.device.type != NAME:
            return of_torch(self, tensor_contents=tensor_contents)
        if not self.is_floating_point():
            return f"{of_torch(self.cpu())[:-1]}, device='{NAME}')"
        shown = of_torch(torch.ops.fractus_field.residues(self.detach()))
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{shown[:-1]}, device='{NAME}', dtype={self.dtype}, GF(2^{torch.ops.fractus_field.bits()}-1){gradient})"

    torch._tensor_str._str = text
