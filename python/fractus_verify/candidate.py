"""Where a function lies, in the words of --candidate. The function itself is not handed over: its file is run again, in a
process of its own, so it must be found there by a name."""
from __future__ import annotations

import inspect
import pathlib
import sys
from collections.abc import Callable
from typing import Any

WANTED = "wanted a function that a .py file defines at its top level, or 'path/file.py:function'"


def spelling(fn: Callable[..., Any] | str) -> str:
    if isinstance(fn, str):
        return fn
    if not inspect.isfunction(fn):
        raise TypeError(f"{WANTED}, got {fn!r}, a {type(fn).__name__}; define a function that calls it, with the contract's arguments")
    name, where = fn.__qualname__, f"{fn.__module__}.{fn.__qualname__}"
    if fn.__name__ == "<lambda>":
        raise ValueError(f"{WANTED}, got a lambda ({where}), which has no name to find it by; write it as a def")
    if not name.isidentifier():
        raise ValueError(f"{WANTED}, got {where}, which is inside of another function or of a class; move it to the top "
                         "level of its file (a decorator's inner function takes the name of what it wraps by functools.wraps)")
    module = sys.modules.get(fn.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not pathlib.Path(file).is_file():
        raise ValueError(f"{WANTED}, got {where}, which no file defines (it comes from a notebook, standard input, -c or exec); "
                         "put it into a file of its own and import it from there")
    if pathlib.Path(file).suffix != ".py":
        raise ValueError(f"{WANTED}, got {where} of '{file}', which is no .py file; define a function in one that calls it")
    there = getattr(module, name, None)
    if there is not fn:
        raise ValueError(f"{WANTED}, got a function that calls itself {where}, but {name} of '{file}' is "
                         f"{'absent' if there is None else 'another object'}: a decorator or an assignment stands between them; "
                         "say 'path/file.py:name' with the name under which its file holds it")
    return f"{pathlib.Path(file).absolute()}:{name}"
