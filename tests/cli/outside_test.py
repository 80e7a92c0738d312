"""Candidates from outside and the battery, by the command line. Each test says what it protects."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from cli_test import ROOT, run

HOSTILE = ROOT / "tests" / "outside" / "hostile.py"
BATTERY = ROOT / "tests" / "outside" / "battery"
OPERATORS = ROOT / "build" / "release" / "bin" / "fractus-test-operators.so"
POWER = ROOT / "tests" / "outside" / "power" / "linear_attention.py"
PEERS = ROOT / "bench" / "peers"
MUTANTS = ROOT.parent / "shared" / "mutants" / "linear_attention.py"
QUICK = ("--preset", "smoke", "--dtype", "float32")


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())

    def judged(self, candidate, status, words, only="contract,gradients"):
        done = run("--candidate", candidate, "--kernel", "linear_attention", *QUICK, "--only", only, "--report", self.folder / "report", "--json", self.folder / "r.json")
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(words, done.stdout)
        return json.loads((self.folder / "r.json").read_text())


class Python(Folder):
    """Protects the author of a kernel in Python: a verdict without porting a line."""

    def test_right(self):
        result = self.judged(f"{HOSTILE}:right", 2, "partial")
        self.assertEqual([p["verdict"] for p in result["properties"]], ["PASSED", "PASSED"])
        self.assertEqual(result["candidate"], f"{HOSTILE}:right")

    def test_whole_verdict(self):
        done = run("--candidate", f"{HOSTILE}:right", "--preset", "smoke", "--report", self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((self.folder / "report.md").read_text().startswith("# EQUIVALENT"))

    def test_relative_path_and_replay(self):
        """The witness of an outside candidate replays, also where it does not show any more."""
        done = run("--candidate", "hostile.py:modifies_input", *QUICK, "--only", "contract", "--report", self.folder, "--json", "-", cwd=HOSTILE.parent)
        self.assertEqual(done.returncode, 4, done.stderr)
        found = next(p["witness"]["fixture"] for p in json.loads(done.stdout)["properties"] if "witness" in p)
        again = run("replay", found, cwd=HOSTILE.parent)
        self.assertEqual(again.returncode, 4, again.stdout + again.stderr)
        self.assertIn("changed q[", again.stdout)
        self.assertEqual(run("replay", found, "--candidate", "hostile.py:right", cwd=HOSTILE.parent).returncode, 0)

    def test_reference(self):
        """Two forms from outside against each other; one that is wrong or cannot be loaded is no basis for a verdict."""
        (self.folder / "broken.py").write_text("raise KeyError('no weights')\ndef f(q): pass\n")
        for candidate, reference, status, words in (
                (f"{HOSTILE}:right", f"{OPERATORS}:fractus_test::attention", 2, "the two differ by at most"),
                ("chunked", f"{HOSTILE}:raises", 3, f"the reference '{HOSTILE}:raises' itself fails contract"),
                ("chunked", f"{self.folder}/broken.py:f", 3, "KeyError: 'no weights'"),
                (f"{HOSTILE}:raises", f"{HOSTILE}:raises_in_backward", 4, "raises_in_backward' itself fails")):
            done = run("--candidate", candidate, "--reference", reference, *QUICK, "--only", "contract,gradients",
                       "--report", self.folder, "--json", self.folder / "r.json")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(words, done.stdout)
            self.assertEqual(json.loads((self.folder / "r.json").read_text())["reference"]["name"], reference)

    def test_salted_sampler(self):
        """A stream that follows from Python's salted hash is another in each interpreter; the same sampler without it is not."""
        (self.folder / "sampler.py").write_text(
            "import torch\n"
            "@torch.no_grad()\n"
            "def draw(h, W, ce_chunk, temperature, seed):\n"
            "    g = torch.Generator().manual_seed(seed & (2 ** 63 - 1))\n"
            "    if h.shape[0] == 0:\n"
            "        return torch.empty(0, dtype=torch.int64)\n"
            "    return torch.multinomial(torch.softmax(h @ W.T / temperature, -1), 1, generator=g).squeeze(-1)\n"
            "def salted(h, W, ce_chunk, temperature, seed):\n"
            "    return draw(h, W, ce_chunk, temperature, hash(f'seed {seed}'))\n")
        for name, status, words in (("salted", 1, "in two processes that have each loaded it"), ("draw", 2, "partial")):
            done = run("--kernel", "sample_tokens", "--candidate", f"{self.folder}/sampler.py:{name}", *QUICK, "--only", "repeat", "--report", self.folder)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(words, done.stdout)

    def test_recompute(self):
        """A form that runs another one again in its backward is held to that one's bits, and to keep less."""
        file = HOSTILE.parent / "recompute.py"
        for name, status, words in (("checkpointed", 2, "partial"), ("keeps_everything", 1, "nothing is saved by it"),
                                    ("other_bits", 1, "without recompute and with it"),
                                    ("runs_the_latest", 1, "other calls under way")):
            done = run("--kernel", "linear_attention", "--candidate", f"{file}:{name}", "--recompute-of", f"{file}:plain", *QUICK, "--only", "recompute",
                       "--report", self.folder, "--json", self.folder / "r.json")
            self.assertEqual(done.returncode, status, name + done.stdout + done.stderr)
            self.assertIn(words, done.stdout)
            result = json.loads((self.folder / "r.json").read_text())
            self.assertEqual(result["recomputes"], f"{file}:plain")
            for witness in (p["witness"] for p in result["properties"] if "witness" in p):
                self.assertEqual(run("replay", witness["fixture"]).returncode, 1)
        for arguments, words in ((("--candidate", "chunked", "--only", "recompute"), "say which 'chunked' does with --recompute-of"),
                                 (("--candidate", "chunked", "--recompute-of", "chunked"), "is the candidate itself"),
                                 (("--candidate", "chunked", "--recompute-of", "chunkd"), "unknown recompute-of 'chunkd'")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 64)
            self.assertIn(words, done.stderr)

    def test_fuzz(self):
        self.assertEqual(run("fuzz", "--candidate", f"{HOSTILE}:right", "--cases", 40).returncode, 0)
        self.assertEqual(run("fuzz", "--candidate", f"{HOSTILE}:raises", "--cases", 40).returncode, 4)
        self.assertEqual(run("fuzz", "--kernel", "linear_attention", "--candidate", f"{HOSTILE}:other_signature", "--cases", 40).returncode, 4)

    def test_compiled(self):
        """torch.compile inside a candidate works; its tracing alone here, since the code generator would need a minute."""
        (self.folder / "compiled.py").write_text(
            f"import sys, torch\nsys.path.insert(0, {str(HOSTILE.parent)!r})\nfrom hostile import right\n"
            "f = torch.compile(right, backend='aot_eager', dynamic=True)\n")
        done = run("fuzz", "--kernel", "linear_attention", "--candidate", f"{self.folder}/compiled.py:f", "--cases", 6, "--only", "rounding")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_bad_usage(self):
        for candidate, words in ((f"{HOSTILE}:rihgt", "did you mean right?"), (f"{HOSTILE.parent}/hostil.py:right", "did you mean"),
                                 (str(HOSTILE), "wanted path/file.py:function"), (f"{HOSTILE.parent}:right", "wanted the name of a form"),
                                 ("a.pt2", "no file"), ("/no/such/lib.so:a::b", "no file"), ("./chunked", "wanted the name of a form")):
            for arguments in (("--candidate", candidate), ("--candidate", "chunked", "--reference", candidate)):
                done = run(*arguments)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn(words, done.stderr)


class Operators(Folder):
    """Protects what is written in C++ elsewhere: an operator in a shared library, by name or by order of its arguments."""

    def test_verdicts(self):
        for name, status, words in (("attention", 2, "partial"), ("renamed", 2, "partial"), ("forgets_carry", 1, "DIFFERENT"),
                                    ("one_output", 4, "wanted a tuple of 3 tensors, got 1 values"),
                                    ("needs_carry", 4, "S0 may be absent, and the schema says Tensor")):
            self.judged(f"{OPERATORS}:fractus_test::{name}", status, words)
        done = run("--kernel", "linear_attention", "--candidate", f"{OPERATORS}:fractus_test::atention")
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("did you mean fractus_test::attention", done.stderr)

    def test_no_library(self):
        (self.folder / "lib.so").write_bytes(b"no library")
        self.judged(f"{self.folder}/lib.so:a::b", 4, "it cannot be loaded")


class Programs(Folder):
    """Protects exported TorchScript."""

    def test_verdicts(self):
        source = f"""
import torch
class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, S0: torch.Tensor | None = None, z0: torch.Tensor | None = None):
        G, D = q.size(0), q.size(2)
        S = S0 if S0 is not None else torch.zeros([G, D, D], dtype=v.dtype)
        z = z0 if z0 is not None else torch.zeros([G, D], dtype=v.dtype)
        w = torch.tril(q @ k.mT)
        den = w.sum(-1) + (q * z.unsqueeze(1)).sum(-1)
        keep = den.abs() > 1e-10
        safe = torch.where(keep, den + 1e-20, torch.ones_like(den)).unsqueeze(-1)
        y = torch.where(keep.unsqueeze(-1), (w @ v + q @ S) / safe, torch.zeros_like(v))
        return y, S + k.mT @ v, z + k.sum(1)
torch.jit.script(Attention()).save({str(self.folder / 'right.pt')!r})
class Two(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor):
        return q @ k
torch.jit.script(Two()).save({str(self.folder / 'two.pt')!r})
"""
        (self.folder / "export.py").write_text(source)
        subprocess.run([ROOT / ".venv" / "bin" / "python", self.folder / "export.py"], check=True, capture_output=True,
                       env={**os.environ, "LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "cuda-stubs")})
        # Not its gradients: from a program's second call on, torch 2.11.0's own differentiation of scripts replaces
        # autograd, and gives this one another dq than the same code outside of a script.
        self.judged(f"{self.folder}/right.pt", 2, "partial", "contract")
        self.judged(f"{self.folder}/two.pt", 4, "there are too few arguments")
        (self.folder / "none.pt").write_bytes(b"no program")
        self.judged(f"{self.folder}/none.pt", 4, "it cannot be loaded")


class Packages(Folder):
    """Protects AOTInductor packages, which hold a forward alone, and --forward-only, which asks for no more."""

    def test_verdicts(self):
        subprocess.run([ROOT / ".venv" / "bin" / "python", ROOT / "tests" / "outside" / "package.py", self.folder], check=True,
                       capture_output=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache"),
                                                 "LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "cuda-stubs")})
        done = run("--kernel", "linear_attention", "--candidate", self.folder / "right.pt2", *QUICK)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("--forward-only", done.stderr)
        done = run("--kernel", "linear_attention", "--candidate", self.folder / "right.pt2", "--forward-only")
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("--dtype float32 or --dtype float64", done.stderr)
        before = set(pathlib.Path(tempfile.gettempdir()).glob("fractus-package-*"))
        for name, status, words in (("right", 0, "EQUIVALENT (float32 only) (forward only)"), ("no_carry", 1, "z(")):
            done = run("--kernel", "linear_attention", "--candidate", self.folder / f"{name}.pt2", *QUICK, "--forward-only", "--report", self.folder)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(words, done.stdout)
        self.assertEqual(set(pathlib.Path(tempfile.gettempdir()).glob("fractus-package-*")), before)
        (self.folder / "none.pt2").write_bytes(b"no package")
        done = run("--kernel", "linear_attention", "--candidate", self.folder / "none.pt2", *QUICK, "--forward-only", "--report", self.folder)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("it cannot be loaded", done.stdout)

    def test_forward_only(self):
        """A form whose gradients alone are wrong is right where none is wanted; one that is wrong forward is not, and both
        measure the plan accordingly."""
        for form, status in (("wrong_dk_lacks_denominator", 0), ("wrong_state_bfloat16", 1), ("chunked", 0)):
            done = run("--kernel", "linear_attention", "--candidate", form, "--preset", "smoke", "--forward-only", "--report", self.folder, "--json", self.folder / "r.json")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        result = json.loads((self.folder / "r.json").read_text())
        self.assertTrue(result["forward_only"])
        self.assertEqual(result["not_applied"], ["gradients"])
        self.assertNotIn("gradients", [p["name"] for p in result["properties"]])
        self.assertEqual(result["mutants"]["survivors"], [])
        self.assertGreater(result["mutants"]["killed"], 40)
        self.assertGreater(result["mutants"]["backward_alone"], 20)
        self.assertIn("--forward-only", (self.folder / "report.md").read_text())
        self.assertEqual(run("--candidate", "chunked", "--forward-only", "--only", "gradients").returncode, 64)
        # One form's fault shows in the gradient of the dtype that this run leaves out, and nowhere else.
        done = run("--candidate", "kuramoto_fused", "--preset", "smoke", "--dtype", "float32", "--forward-only", "--report", self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Battery(Folder):
    """Protects the measure of the harness itself: what was killed, by what, and that what is right was accepted."""

    def test_live(self):
        """The training run's size class meets every kind of case, not the ordinary one alone."""
        done = run("battery", ROOT / "tests" / "outside" / "live", "--dtype", "float32")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("7 of 7 mutants killed, 1 of 1 controls accepted", done.stdout)

    def test_small(self):
        done = run("battery", BATTERY, "--dtype", "float32", "--preset", "smoke", "--json", self.folder / "b.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 of 2 mutants killed, 2 of 2 controls accepted", done.stdout)
        functions = {f["name"]: f for f in json.loads((self.folder / "b.json").read_text())["functions"]}
        self.assertEqual({name: f["verdict"] for name, f in functions.items()},
                         {"correct_one_matrix": "EQUIVALENT", "correct_checkpointed": "EQUIVALENT",
                          "mutant_z_forgets_z0": "DIFFERENT", "mutant_raises_at_one_token": "FAILED"})
        for function in functions.values():
            self.assertIsInstance(function["property"], str)
            self.assertIsInstance(function["seconds"], float)
        self.assertEqual(functions["mutant_raises_at_one_token"]["smallest"]["dims"]["T"], 1)

    def test_names_that_lie(self):
        """A mutant that is right survives, a control that is wrong is refused: status 3, and both are named."""
        text = (BATTERY / "linear_attention.py").read_text()
        text += "\nmutant_that_is_right = correct_one_matrix\ncorrect_that_is_not = mutant_z_forgets_z0\n"
        (self.folder / "linear_attention.py").write_text(text)
        (self.folder / "other_kernel.py").write_text("raise SystemExit")
        done = run("battery", self.folder, "--dtype", "float32", "--preset", "smoke")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("mutant_that_is_right survives", done.stdout)
        self.assertIn("correct_that_is_not is refused", done.stdout)
        self.assertIn("skipped:", done.stderr)
        self.assertIn("2 of 3 mutants killed, 2 of 3 controls accepted", done.stdout)

    def test_a_file_that_cannot_be_loaded(self):
        (self.folder / "linear_attention.py").write_text("import no_such_module\ndef mutant_a(q): pass\ndef correct_b(q): pass\n")
        done = run("battery", self.folder / "linear_attention.py")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("No module named 'no_such_module'", done.stdout)

    def test_bad_usage(self):
        (self.folder / "linear_attention.py").write_text("def mutant_(:")
        (self.folder / "unknown.py").write_text("def mutant_a(x): pass")
        (self.folder / "empty.py").write_text("")
        for arguments, words in (([], "PATH"), ([self.folder / "none.py"], "no file"), ([self.folder / "unknown.py"], "say which with --kernel"),
                                 ([self.folder / "linear_attention.py"], "cannot read"),
                                 ([self.folder / "empty.py", "--kernel", "linear_attention"], "no top-level function"),
                                 ([BATTERY, "--waive", "shared-edge"], "did you mean shared-edges")):
            done = run("battery", *arguments)
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)


class Power(Folder):
    """Protects the comparison with other tools: each is counted for what it answered, and for nothing else."""

    def test_table(self):
        done = run("bench", "power", POWER, *QUICK, "--json", self.folder / "p.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        tools = json.loads((self.folder / "p.json").read_text())["tools"]
        self.assertEqual(len(tools), 7)
        for tool in tools:
            blind = "accepted" if "gradcheck" in tool["tool"] else "refused"  # it compares a function with its own gradient
            self.assertEqual({f["name"]: f["answer"] for f in tool["functions"]}, {
                "correct_one_matrix": "accepted", "correct_that_is_not": blind, "mutant_exits": "refused", "mutant_value_off": blind,
                "mutant_never_cut": "refused" if tool["tool"] == "fractus-verify" else "accepted", "mutant_that_is_right": "accepted"}, tool["tool"])
        self.assertRegex(done.stdout, r"fractus-verify +3 of 4 +1 of 2 ")
        self.assertRegex(done.stdout, r"gradcheck +1 of 4 +0 of 2 ")
        self.assertRegex(done.stdout, r"assert_close +2 of 4 +1 of 2 ")
        self.assertIn("\n  gradcheck misses mutant_value_off, mutant_never_cut, mutant_that_is_right\n", done.stdout)
        self.assertIn("\n  assert_close refuses correct_that_is_not\n", done.stdout)

    def python(self, *arguments):
        environment = os.environ | {"LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "cuda-stubs")}
        return subprocess.run([ROOT / ".venv" / "bin" / "python", "-I", *arguments], capture_output=True, text=True, env=environment, timeout=120)

    def peers(self, *functions, lines={}):
        """Runs the peers' own program on one small input a tool, with lines of the kernel's file changed."""
        text = (PEERS / "linear_attention.py").read_text() + "\nCOMPARED, PROBED = COMPARED[-1:], PROBED[:1]\n"
        for old, new in lines.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.folder / "linear_attention.py").write_text(text)
        (self.folder / "run.py").write_text((PEERS / "run.py").read_text())
        return self.python(self.folder / "run.py", "linear_attention", POWER, *functions)

    def test_endings(self):
        """What ends a process, or does not end, is the function's doing once it is called, and nobody's before."""
        script = (f"import json, os, signal, sys, time; sys.path.insert(0, {str(PEERS)!r}); import run; run.LIMIT_S = 1\n"
                  "def hang(): time.sleep(100)\n"
                  "def crash(): os.kill(os.getpid(), signal.SIGSEGV)\n"
                  "def leave(): os._exit(3)\n"
                  "def leave_another(): os.fork() or time.sleep(100); os._exit(0)\n"
                  "for end in hang, crash, leave, leave_another:\n"
                  "    called = run.tried(lambda send: (send('judging'), end()))\n"
                  "    before = run.tried(lambda send: end())\n"
                  "    print(json.dumps([called, before]))")
        done = self.python("-c", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        reasons = ["no end within 1 s", "signal 11", "exit status 3", "no end within 1 s"]
        for line, reason in zip(done.stdout.splitlines(), reasons, strict=True):
            called, before = json.loads(line)
            self.assertEqual((called["result"], called["reason"]), ("refused", reason))
            self.assertEqual((before["result"], before["reason"]), ("fault", reason))

    def test_no_answer_is_no_kill(self):
        done = self.peers("mutant_none", "correct_one_matrix")
        self.assertEqual(done.returncode, 0, done.stderr)
        for tool in json.loads(done.stdout)["tools"]:
            self.assertEqual([f["result"] for f in tool["functions"]], ["fault", "accepted"], tool["tool"])
            self.assertIn("no attribute 'mutant_none'", tool["functions"][0]["reason"])

    def test_peers_that_measure_nothing(self):
        """A tool that refuses the reference, or accepts what is off, would refuse or accept everything else too."""
        for old, new, words in (("return y, S[:, -1], z[:, -1]", "return y.detach() + 0 * y, S[:, -1], z[:, -1]", "gradcheck: the reference must be accepted"),
                                ("COMPARED[-1:]", "()", "assert_close: a reference that is 3 % off must be refused")):
            done = self.peers("correct_one_matrix", lines={old: new})
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_bad_usage(self):
        (self.folder / "linear_attention.py").write_text("import no_such_module\ndef mutant_a(q): pass\n")
        for arguments, words in ((["power", self.folder / "none.py"], "no file"), (["power", self.folder], "is no regular file"),
                                 (["power", self.folder / "linear_attention.py", "--preset", "smoke"], "No module named 'no_such_module'"),
                                 (["oracle", POWER], "takes --json alone"), (["attention", "--preset", "smoke"], "takes --json alone")):
            done = run("bench", *arguments)
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
