"""Holds a Python function against a kernel's definition, by the command ./fractus-verify of a checkout.

    result = fractus_verify.check(my_attention, kernel="linear_attention", preset="smoke")
    print(result)           # what the command prints
    assert result           # true where the verdict is EQUIVALENT, and only there

In pytest: the fixture `equivalent`, see fractus_verify.pytest_plugin. `fractus_verify.field` runs functions of torch over a finite field;
it alone needs torch, and is loaded where it is first named."""
from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from .candidate import spelling
from .command import CommandError, UsageError, verdict
from .result import Mutants, Property, Result, Witness

__all__ = ["check", "CommandError", "Mutants", "Property", "Result", "UsageError", "Witness"]


def check(fn: Callable[..., Any] | str, kernel: str = "linear_attention", *, budget: str | float | None = None,
          preset: str | None = None, dtype: str | None = None, waive: Iterable[str] = (), only: Iterable[str] = (),
          seed: int | None = None, reference: Callable[..., Any] | str | None = None, forward_only: bool = False) -> Result:
    """The verdict on `fn`: a function that a file defines at its top level, "path/file.py:function" or another spelling of
    --candidate; so is `reference`. The options are the command's; a budget that is a number is seconds. What the function does is in the
    result; TypeError, ValueError (UsageError is one) and CommandError mean that there is none."""
    options: dict[str, str] = {"--candidate": spelling(fn), "--kernel": kernel}
    if budget is not None:
        options["--budget"] = budget if isinstance(budget, str) else f"{float(budget)!r}s"
    if preset is not None:
        options["--preset"] = preset
    if dtype is not None:
        options["--dtype"] = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    for option, names in (("--waive", waive), ("--only", only)):
        if listed := [names] if isinstance(names, str) else list(names):
            options[option] = ",".join(listed)
    if seed is not None:
        options["--seed"] = str(seed)
    if reference is not None:
        options["--reference"] = spelling(reference)
    return verdict(options, flags=["--forward-only"] if forward_only else [])


def __getattr__(name: str) -> Any:
    if name == "field":
        return importlib.import_module(".field", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
