"""fractus_verify.check. Each test says what it protects."""
import contextlib
import functools
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

from environment import ROOT

sys.path.insert(0, str(ROOT / "python"))
import fractus_verify
from fractus_verify import CommandError, UsageError, check
from fractus_verify.candidate import spelling

import forms

FORMS = pathlib.Path(forms.__file__)
QUICK = {"preset": "smoke", "dtype": "float32"}


class Verdicts(unittest.TestCase):
    """Protects the author of a kernel: the verdict of the command, whole and as an object."""

    def test_right(self):
        result = check(forms.right, kernel="linear_attention", preset="smoke", seed=5)
        self.assertEqual(result.verdict, "EQUIVALENT", result.text)
        self.assertTrue(result and result.equivalent)
        self.assertIsNone(result.witness)
        self.assertEqual((result.kernel, result.candidate), ("linear_attention", f"{FORMS}:right"))
        self.assertEqual((result.seed, result.preset, result.dtypes), (5, "smoke", ("float32", "float64")))
        self.assertRegex(result.plan_hash, "^[0-9a-f]{64}$")
        self.assertEqual(result.mutants.killed, result.mutants.total)
        self.assertGreater(result.mutants.total, 0)
        self.assertIn("rounding", [p.name for p in result.properties])
        self.assertTrue(all(p.verdict == "PASSED" and p.cases == p.planned for p in result.properties))
        self.assertIn(f"EQUIVALENT  linear_attention {FORMS}:right", str(result))
        self.assertEqual(result.json["format"], "fractus-verify result 1")

    def test_reference_and_forward_only(self):
        """Both forms are judged; and where no gradient is wanted, none is."""
        result = check("chunked", reference=forms.forgets_z0, forward_only=True, only="contract", **QUICK)
        self.assertEqual(result.verdict, "MISTRUSTED", result.text)
        self.assertEqual(result.json["reference"]["name"], f"{FORMS}:forgets_z0")
        self.assertTrue(result.json["forward_only"])

    def test_wrong(self):
        """The witness as an object and as text; and its command runs from where the caller stands, which is not the checkout."""
        with tempfile.TemporaryDirectory() as folder, standing_in(folder):
            result = check(forms.forgets_z0, only="contract", **QUICK)
            witness = result.witness
            again = subprocess.run(["bash", "-c", witness.replay], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.verdict, "DIFFERENT", result.text)
        self.assertFalse(result)
        self.assertEqual((witness.property, witness.tensor, witness.broken), ("contract", "z", False))
        self.assertEqual(witness.case["dims"], {"G": 1, "T": 1, "D": 1})
        self.assertEqual(len(witness.index), 2)
        self.assertGreater(abs(witness.expected - witness.got), witness.tolerance)
        for part in ("contract breaks at contract float32", witness.text, witness.replay, "DIFFERENT  linear_attention"):
            self.assertIn(part, result.message)
        self.assertNotIn("plan ", result.message)
        self.assertEqual(again.returncode, 1, again.stdout + again.stderr)
        self.assertIn(witness.text, again.stdout)

    def test_failed(self):
        result = check(forms.raises, only=["contract"], **QUICK)
        self.assertEqual(result.verdict, "FAILED")
        self.assertTrue(result.witness.broken)
        self.assertIn("no kernel today", result.message)

    def test_undecided(self):
        """A run without a finding that was cut short is not a yes."""
        result = check(forms.right, only=["contract"], budget=30, **QUICK)
        self.assertEqual((result.verdict, result.partial), ("UNDECIDED", True))
        self.assertFalse(result)
        self.assertIn("partial", result.message)
        self.assertIn(result.reasons[0], result.message)

    def test_other_spellings(self):
        with standing_in(FORMS.parent):
            self.assertEqual(check("forms.py:decorated_elsewhere", only="contract", **QUICK).properties[0].verdict, "PASSED")
        self.assertEqual(check("chunked:block=16", only="contract", waive="shared-edges", **QUICK).waived, ("shared-edges",))
        self.assertEqual(check(forms.decorated, only="contract", **QUICK).properties[0].verdict, "PASSED")


class Functions(unittest.TestCase):
    """Protects against a verdict on another function than the one that was given."""

    def refused(self, kind, words, fn):
        with self.assertRaises(kind) as caught:
            check(fn)
        self.assertIn("wanted a function that a .py file defines at its top level", str(caught.exception))
        self.assertIn(words, str(caught.exception))

    def test_found(self):
        self.assertEqual(spelling(forms.right), f"{FORMS}:right")
        self.assertEqual(spelling(forms.decorated), f"{FORMS}:decorated")

    def test_without_a_name(self):
        self.refused(ValueError, "got a lambda", lambda q, k, v, S0=None, z0=None: None)
        self.refused(ValueError, "got a lambda", forms.on_one_line)
        self.refused(ValueError, "make.<locals>.nested, which is inside of another function", forms.make())
        self.refused(ValueError, "Forms.static, which is inside of another function or of a class", forms.Forms.static)
        self.refused(ValueError, "functools.wraps", forms.decorated_bare)

    def test_no_function(self):
        for thing in (print, functools.partial(forms.right), forms.Forms, forms.Forms().method, None, 3, math.sqrt, pathlib.Path("a.py")):
            self.refused(TypeError, repr(thing), thing)

    def test_another_of_that_name(self):
        self.refused(ValueError, "calls itself forms.right, but right of", forms.decorated_elsewhere)
        with mock.patch.object(forms, "right", forms.raises):
            self.assertEqual(spelling(forms.right), f"{FORMS}:raises")
        gone = forms.raises
        with mock.patch.object(forms, "raises", forms.right):
            self.refused(ValueError, "another object", gone)

    def test_no_file(self):
        space = {"__name__": "from_nowhere"}
        exec("def f(q, k, v, S0=None, z0=None): pass", space)
        self.refused(ValueError, "got from_nowhere.f, which no file defines", space["f"])
        module = types.ModuleType("made_up")
        module.f, space["f"].__module__, module.__file__ = space["f"], "made_up", str(FORMS.with_suffix(".so"))
        with mock.patch.dict(sys.modules, made_up=module):
            self.refused(ValueError, "which no file defines", module.f)
            module.__file__ = sys.executable
            self.refused(ValueError, "which is no .py file", module.f)
        code = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import fractus_verify\ndef f(q): pass\nfractus_verify.check(f)"
        for arguments, text in ((["-c", code], None), (["-"], code)):
            done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True, timeout=60)
            self.assertIn("got __main__.f, which no file defines (it comes from a notebook", done.stderr)

    def test_script(self):
        """A function of the script that calls check; and a script that forgot to say when: it is told, and does not call itself
        for ever."""
        text = (f"import sys\nsys.path.insert(0, {str(ROOT / 'python')!r})\nsys.path.insert(0, {str(FORMS.parent)!r})\n"
                "import fractus_verify\nfrom forms import _attention\ndef f(q, k, v, S0=None, z0=None): return _attention(q, k, v, S0, z0)\n")
        call = "print(fractus_verify.check(f, only='contract', preset='smoke', dtype='float32'))\n"
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script.py"
            for last, words in ((f"if __name__ == '__main__':\n    {call}", "contract   PASSED"),
                                (call, "asks for a verdict while it is being judged")):
                script.write_text(text + last)
                done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
                self.assertIn(words, done.stdout, done.stderr)


class Trouble(unittest.TestCase):
    """Protects against a run without a verdict that looks like one."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def no_verdict(self, kind, words, script=None, fn="chunked", **options):
        if script is not None:
            fake = self.folder / "fractus-verify"
            fake.write_text("#!/bin/sh\nfor argument; do file=${argument#--json=}; done\n" + script)
            fake.chmod(0o755)
            patch = mock.patch.dict(os.environ, FRACTUS_VERIFY=str(fake))
        else:
            patch = mock.patch.dict(os.environ)
        with patch, self.assertRaises(kind) as caught:
            check(fn, **options)
        self.assertIn(words, str(caught.exception))

    def test_usage(self):
        """The command's own words, which name what was wanted."""
        for words, options in (("did you mean linear_attention", {"kernel": "linear_atention"}), ("did you mean chunked", {"fn": "chunkd"}),
                               ("--budget: wanted a time", {"budget": -1}), ("--budget: wanted a time", {"budget": math.nan}),
                               ("--preset", {"preset": "lively"}), ("did you mean float32", {"dtype": "float23"}),
                               ("--seed", {"seed": -1}), ("did you mean rounding", {"only": ["roundin"]}), ("--candidate", {"fn": ""}),
                               ("did you mean shared-edges", {"waive": ["shared-edge"]}), ("--only", {"only": [""]}),
                               ("did you mean right", {"fn": f"{FORMS}:rigth"}), ("no file", {"fn": "nowhere.py:f"})):
            self.no_verdict(UsageError, words, **options)
        self.assertTrue(issubclass(UsageError, ValueError))

    def test_no_command(self):
        with mock.patch.dict(os.environ, FRACTUS_VERIFY=str(self.folder / "none")):
            self.no_verdict(CommandError, f"FRACTUS_VERIFY: wanted a checkout of fractus-verify or the command in it, got '{self.folder}/none'")
        (self.folder / "fractus-verify").write_text("no program")
        with mock.patch.dict(os.environ, FRACTUS_VERIFY=str(self.folder)):
            self.no_verdict(CommandError, "where there is no program that can be run")
        (self.folder / "fractus-verify").chmod(0o755)  # now it may run, and cannot
        with mock.patch.dict(os.environ, FRACTUS_VERIFY=str(self.folder)):
            self.no_verdict(CommandError, "does not start")

    def test_endings(self):
        self.no_verdict(CommandError, "failed by itself (status 70), without a verdict. It said:\nno disk", "echo no disk >&2; exit 70")
        self.no_verdict(CommandError, "was ended by signal SIGINT, without a verdict, and said nothing", "kill -INT $$")
        self.no_verdict(CommandError, "was ended by signal SIGKILL", "kill -KILL $$")
        self.no_verdict(CommandError, "ended in status 9, which is none of its own", "exit 9")

    def test_results_that_cannot_be_read(self):
        self.no_verdict(CommandError, "ended in status 0, and its result cannot be read (FileNotFoundError", "exit 0")
        self.no_verdict(CommandError, "cannot be read (JSONDecodeError", "echo '{' >$file; exit 0")
        self.no_verdict(CommandError, "wanted the format 'fractus-verify result 1', got '2'", "echo '{\"format\": \"2\"}' >$file; exit 0")
        self.no_verdict(CommandError, "cannot be read (KeyError: 'mutants')", "echo '{\"format\": \"fractus-verify result 1\"}' >$file; exit 0")
        result = check("chunked", only="contract", **QUICK).json
        self.assertEqual(result["verdict"], "UNDECIDED")
        (self.folder / "kept.json").write_text(json.dumps(result))
        self.no_verdict(CommandError, "ended in status 0, and its result says UNDECIDED", f"cp {self.folder}/kept.json $file; exit 0")

    def test_interrupted(self):
        """Ctrl-C in the caller ends the command with its workers, and comes through as what it is."""
        code = (f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import fractus_verify\n"
                f"try:\n  fractus_verify.check({f'{FORMS}:right'!r})\nexcept KeyboardInterrupt:\n  print('interrupted')\n")
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        below = []
        while "fractus-worker" not in map(name_of, below):
            self.assertLess(time.monotonic(), deadline, below)
            time.sleep(0.05)
            below = children_of(process.pid)
        process.send_signal(signal.SIGINT)  # to the caller alone, as from a program; a terminal sends it to all
        printed, said = process.communicate(timeout=20)
        self.assertEqual(printed, "interrupted\n", said)
        deadline = time.monotonic() + 5
        while left := [p for p in below if runs(p)]:
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.05)


def children_of(process):
    """All processes below it."""
    found = []
    for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, read(children).split()):
            found += [child, *children_of(child)]
    return found


def name_of(process):
    return read(pathlib.Path(f"/proc/{process}/comm")).strip()


def runs(process):
    return read(pathlib.Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"])


def read(file):
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


@contextlib.contextmanager
def standing_in(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    unittest.main()
