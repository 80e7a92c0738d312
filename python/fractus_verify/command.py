"""Finds ./fractus-verify, runs it, and reads what it leaves."""
from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator

from .result import Result, result_from

STATUSES = {"EQUIVALENT": 0, "DIFFERENT": 1, "UNDECIDED": 2, "MISTRUSTED": 3, "FAILED": 4}
BAD_USAGE, OWN_FAILURE = 64, 70
FORMAT = "fractus-verify result 1"
SECONDS_TO_END = 10  # that the command gets for ending its workers


class CommandError(RuntimeError):
    """The command is not there, or ended without a verdict."""


class UsageError(ValueError):
    """The command cannot do what it was asked for; the message is its own."""


def launcher() -> pathlib.Path:
    """FRACTUS_VERIFY where it is set; else of the checkout that this file lies in, or that pip installed it from."""
    if given := os.environ.get("FRACTUS_VERIFY"):
        path = pathlib.Path(given).absolute()
        if path.is_dir():
            path /= "fractus-verify"
        if not _runs(path):
            raise CommandError(f"FRACTUS_VERIFY: wanted a checkout of fractus-verify or the command in it, got '{given}', where there "
                               "is no program that can be run")
        return path
    checkouts = [pathlib.Path(__file__).resolve().parents[2]]
    if installed := _installed_from():
        checkouts.append(installed)
    for checkout in checkouts:
        if _runs(checkout / "fractus-verify"):
            return checkout / "fractus-verify"
    where = f"pip installed it from '{installed}', and the command is not there any more" if installed else \
        "pip did not install it from a checkout"
    raise CommandError(f"fractus_verify calls the command of a checkout of fractus-verify, and finds none: {where}. Set FRACTUS_VERIFY to "
                       "the checkout's folder, or install from it: pip install CHECKOUT")


def _runs(path: pathlib.Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _installed_from() -> pathlib.Path | None:
    """The folder that pip was given, which it notes down (PEP 610)."""
    try:
        noted = importlib.metadata.distribution("fractus-verify").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = json.loads(noted or "{}")
    if "dir_info" not in url:
        return None
    return pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(url["url"]).path))


def verdict(options: dict[str, str], flags: list[str]) -> Result:
    if pathlib.Path("/proc/self/exe").resolve().name == "fractus-worker":
        raise CommandError("a candidate's file asks for a verdict while it is being judged; put the call under "
                           "if __name__ == '__main__':, or into another file")
    command = launcher()
    with tempfile.TemporaryDirectory(prefix="fractus-verify-") as folder:
        file = pathlib.Path(folder) / "result.json"
        status, printed, said = _run([str(command), *_arguments(options), *flags, f"--json={file}"])
        said = said.strip()
        if status == BAD_USAGE:
            raise UsageError(said.partition("\nTry: ")[0].removeprefix("fractus-verify: "))
        if status < 0 or status > 128:
            number = -status if status < 0 else status - 128
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            raise CommandError(f"'{command}' was ended by signal {name}, without a verdict{_behind(said)}")
        if status == OWN_FAILURE:
            raise CommandError(f"'{command}' failed by itself (status {status}), without a verdict{_behind(said)}")
        if status not in STATUSES.values():
            raise CommandError(f"'{command}' ended in status {status}, which is none of its own{_behind(said)}")
        try:
            written = json.loads(file.read_text())
            if written["format"] != FORMAT:
                raise ValueError(f"wanted the format '{FORMAT}', got '{written['format']}'")
            program = "./fractus-verify" if command.parent == pathlib.Path.cwd() else shlex.quote(str(command))
            result = result_from(written, printed, program)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CommandError(f"'{command}' ended in status {status}, and its result cannot be read ({type(error).__name__}: {error}); "
                               f"package and command may be of two versions: install the package anew{_behind(said)}") from error
    if STATUSES.get(result.verdict) != status:
        raise CommandError(f"'{command}' ended in status {status}, and its result says {result.verdict}{_behind(said)}")
    return result


def _arguments(options: dict[str, str]) -> Iterator[str]:
    """A value that begins with a dash is judged as a value only behind =, an empty one only as a word of its own."""
    for option, value in options.items():
        yield from (f"{option}={value}",) if value else (option, "")


def _behind(said: str) -> str:
    return f". It said:\n{said[-2000:]}" if said else ", and said nothing"


def _run(arguments: list[str]) -> tuple[int, str, str]:
    """Status, standard output and standard error. Whatever ends the wait (Ctrl-C, a test's time limit) ends the command too."""
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CommandError(f"'{arguments[0]}' does not start: {error}") from error
    try:
        printed, said = process.communicate()
    except BaseException:
        process.terminate()  # it ends its workers and removes its temporary files
        try:
            process.wait(timeout=SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # The pipes are not read to their end: what a set-up had begun, such as a compiler, holds them a while longer.
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise
    return process.returncode, printed, said
