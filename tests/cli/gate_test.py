"""The gate's command from outside, with envelopes that another implementation signed. Each test says what it protects."""
import base64
import datetime
import hashlib
import json
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import unittest

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cli_test import ROOT, run

GATE = ROOT / "ci" / "gate"


def time_text(days):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine_of_this_build(folder):
    """As the gate itself reads it: from the answer to an envelope that is none."""
    policy = folder / "machine.toml"
    policy.write_text('format = "fractus-verify policy 1"\nkeys = ["ci.pub.pem"]\n[kernels]\nmoe = 1\n')
    done = run("gate", "--policy", policy, "--envelope", folder / "none.json", "--artifact", folder / "none.py", "--json", "-")
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)["machine"]


class Gate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        done = run("key", "new", cls.folder / "ci.pem")
        assert done.returncode == 0, done.stderr
        cls.machine = machine_of_this_build(cls.folder)
        cls.candidate = cls.folder / "kernels.py"
        cls.candidate.write_text("def attention(q, k, v):\n    return q\n")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def predicate(self):
        return {"format": "fractus-verify verdict 1", "verdict": "EQUIVALENT", "kernel": "linear_attention",
                "candidate": "kernels.py:attention", "settings": {}, "contract_version": 1, "plan_hash": "a" * 64, "seed": 1, "preset": "live",
                "dtypes": ["float32", "float64"], "forward_only": False, "waived": [], "cases": 1185, "elements": 15958486,
                "undecidable": 151546, "undecidable_share": 0.0095,
                "mutants": {"measured": True, "killed": 124, "total": 124, "survivors": []},
                "coverage": {"covered": 63, "planned": 63, "missing": [], "largest": {}},
                "properties": [{"name": "rounding", "verdict": "PASSED", "cases": 1185, "planned": 1185, "worst_ratio": 0.9}],
                "machine": {**self.machine, "cpu_features": self.machine["cpu_features"].split()}, "issued": time_text(-1),
                "expires": time_text(29), "candidate_subjects": ["kernels.py"], "reference_subjects": []}

    def sign(self, predicate, name="envelope.json", subjects=None):
        subjects = subjects or {"kernels.py": {"sha256": hashlib.sha256(self.candidate.read_bytes()).hexdigest()}}
        kind = "application/vnd.in-toto+json"
        payload = json.dumps({"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:fractus-verify:verdict:1",
                              "subject": [{"name": n, "digest": d} for n, d in subjects.items()], "predicate": predicate}).encode()
        key = load_pem_private_key((self.folder / "ci.pem").read_bytes(), None)
        signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload))
        envelope = self.folder / name
        envelope.write_text(json.dumps({"payloadType": kind, "payload": base64.b64encode(payload).decode(),
                                        "signatures": [{"sig": base64.b64encode(signature).decode()}]}))
        return envelope

    def policy(self, more="", name="policy.toml"):
        path = self.folder / name
        path.write_text('format = "fractus-verify policy 1"\nkeys = ["ci.pub.pem"]\n' + more + "[kernels]\nlinear_attention = 1\n")
        return path

    def gate(self, *arguments, envelope=None, policy=None, artifact=None, **options):
        return run("gate", "--policy", policy or self.policy(), "--envelope", envelope or self.sign(self.predicate()),
                   "--artifact", artifact or self.candidate, *arguments, **options)

    def test_admits(self):
        """Protects the right one: what another implementation signed as our format says is let through."""
        done = self.gate()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.startswith("ADMITTED  "), done.stdout)
        self.assertIn("torch", done.stdout)
        self.assertIn("not asked for: ", done.stdout)
        self.assertNotIn("\033", done.stdout)
        self.assertNotIn("PRIVATE", done.stdout + done.stderr)

    def test_ladder(self):
        """Protects the steps' order from outside: the first step is admitted by its envelope, a later one in its place is not, and a
        step whose envelope has expired is not."""
        state = self.folder / "STATE.json"
        def climb(step, predicate):
            self.sign(predicate, "step.json")
            state.write_text(json.dumps({"format": "fractus-verify ladder 1", "steps": [
                {"step": step, "done": False, "proofs": [{"envelope": "step.json", "artifacts": ["kernels.py"]}]}]}))
            return run("gate", "--policy", self.policy(), "--ladder", state)
        done = climb("code-swap", self.predicate())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("code-swap is to be taken", done.stdout)
        done = climb("chunked-attention", self.predicate())
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("too early", done.stdout)
        done = climb("code-swap", self.predicate() | {"expires": time_text(-0.5)})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("it expired at", done.stdout)

    def test_an_older_answer_is_none(self):
        """Protects: where the gate cannot even begin, no answer of an earlier run is left for a reader to take for its own."""
        answer = self.folder / "old.json"
        self.assertEqual(self.gate("--json", answer).returncode, 0)
        self.assertTrue(json.loads(answer.read_text())["admitted"])
        broken = self.folder / "broken.toml"
        broken.write_text("format = ")
        self.assertEqual(self.gate("--json", answer, policy=broken).returncode, 64)
        self.assertFalse(answer.exists())

    def test_shadows(self):
        """Protects: what Python would load in place of a verified source, a package or an extension of its name, is refused."""
        for shadow, is_folder in (("kernels", True), ("kernels.abi3.so", False)):
            path = self.folder / shadow
            path.mkdir() if is_folder else path.write_text("")
            done = self.gate()
            path.rmdir() if is_folder else path.unlink()
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("may be loaded in place of", done.stdout)
        self.assertEqual(self.gate().returncode, 0)

    def test_lists_all_refusals(self):
        """Protects whoever has to mend it: all that is wrong is said at once, in both forms of the answer."""
        predicate = self.predicate() | {"verdict": "DIFFERENT", "preset": "smoke", "expires": time_text(-0.5)}
        envelope = self.sign(predicate)
        other = self.folder / "other.py"
        other.write_text("print()")
        done = self.gate("--json", "-", envelope=envelope, artifact=other)
        self.assertEqual(done.returncode, 1, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["format"], "fractus-verify gate 1")
        self.assertIs(answer["admitted"], False)
        self.assertEqual([r["check"] for r in answer["refusals"]], ["artifact", "artifact", "verdict", "scope", "time"])
        for refusal in answer["refusals"]:
            self.assertTrue(refusal["fact"] and refusal["remedy"], refusal)
            self.assertIn(refusal["fact"], done.stderr)
            self.assertIn(refusal["remedy"], done.stderr)
        self.assertTrue(done.stderr.startswith("REFUSED  5 refusals\n"), done.stderr)

    def test_json(self):
        """Protects a pipeline's reader: the fields that docs/gate.md names, and nothing half-written."""
        file = self.folder / "gate.json"
        self.assertEqual(self.gate("--json", file).returncode, 0)
        answer = json.loads(file.read_text())
        self.assertEqual(set(answer), {"format", "admitted", "refusals", "checked", "not_asked", "not_looked_at", "policy", "envelope",
                                       "artifacts", "machine", "torch_folder", "clock"})
        page = (ROOT / "docs" / "gate.md").read_text()
        for field in answer:
            self.assertIn(f"`{field}`", page)
        for member in answer["policy"]["members"]:
            if member != "revoked":
                self.assertIn(f"`{member}`", page)
        self.assertEqual(answer["artifacts"][0]["digest"], hashlib.sha256(self.candidate.read_bytes()).hexdigest())
        self.assertEqual(answer["policy"]["sha256"], hashlib.sha256(self.policy().read_bytes()).hexdigest())
        self.assertEqual(answer["envelope"]["statement"]["kernel"], "linear_attention")

    def test_machine_of_a_file(self):
        """Protects a check before the pod is there: its class comes from a file, such as an answer that was given on one."""
        answer = self.folder / "here.json"
        self.gate("--json", answer)
        self.assertEqual(self.gate("--machine", answer).returncode, 0)
        pod = self.folder / "pod.json"
        pod.write_text(json.dumps(self.machine | {"gpu": "NVIDIA H200", "driver": "580.1"}))
        done = self.gate("--machine", pod)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu: wanted none, got NVIDIA H200", done.stdout)
        self.assertIn("driver: wanted none, got 580.1", done.stdout)

    def test_torch_of_the_run(self):
        """Protects against the wrong torch: that of the Python on PATH is read, not run, and one that is named is read in its place."""
        for name, version in (("venv", "2.9.0"), ("other", "2.8.0")):
            folder = self.folder / name / "lib" / "python3.11" / "site-packages" / "torch"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "version.py").write_text(f"__version__ = '{version}'\ncuda = '13.0'\n")
            (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
            program = self.folder / name / "bin" / "python3"
            program.parent.mkdir(exist_ok=True)
            program.write_text("#!/bin/sh\necho run >&2\nexit 9\n")
            program.chmod(0o755)
        bare = {"PATH": f"{self.folder / 'venv' / 'bin'}:{os.environ['PATH']}"}
        done = self.gate(env=os.environ | bare)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("got 2.9.0", done.stdout)
        self.assertNotIn("run", done.stderr)
        done = self.gate("--torch", self.folder / "other" / "lib" / "python3.11" / "site-packages" / "torch", env=os.environ | bare)
        self.assertIn("got 2.8.0", done.stdout)

    def test_policy_by_digest(self):
        """Protects the policy: with its digest given, one that has any byte changed judges nothing."""
        policy = self.policy('max_age = "7d"\n')
        digest = hashlib.sha256(policy.read_bytes()).hexdigest()
        self.assertEqual(self.gate("--policy-sha256", digest, policy=policy).returncode, 0)
        text = policy.read_bytes()
        at = text.index(b"7d")
        policy.write_bytes(text[:at] + b"9" + text[at + 1:])
        done = self.gate("--policy-sha256", digest, policy=policy)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("not looked at: envelope", done.stdout)
        policy.write_bytes(text[:at] + b"x" + text[at + 1:])  # it would not even be read
        self.assertEqual(self.gate("--policy-sha256", digest, policy=policy).returncode, 1)

    def test_bad_usage(self):
        """Protects the newcomer, and the gate: what is asked wrongly is no answer."""
        def refused(words, done):
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")
        refused("nothing was asked for", run("gate"))
        refused("with all three", run("gate", "--artifact", self.candidate))
        refused("with all three", run("gate", "--policy", self.policy(), "--envelope", "e.json"))
        refused("give one with --envelope", run("gate", "--policy", self.policy()))
        refused("--policy-sha256", self.gate("--policy-sha256", "abc"))
        refused("given twice", self.gate("--artifact", self.candidate))
        refused("did you mean max_age", self.gate(policy=self.policy('max_aeg = "1d"\n')))
        refused("none.toml", self.gate(policy=self.folder / "none.toml"))
        refused("--machine", self.gate("--machine", self.folder / "none.json"))
        refused("--torch", self.gate("--torch", self.folder))
        refused("--torch", self.gate("--torch", self.folder, "--machine", self.folder / "none.json"))
        refused("--policy", self.gate("--policy", ""))
        refused("--at", self.gate("--at", "2020-01-01T00:00:00Z"))

    def test_output_that_nobody_reads(self):
        """Protects the status: it is the answer, whatever becomes of the words."""
        arguments = [str(ROOT / "fractus-verify"), "gate", "--policy", str(self.policy()), "--envelope", str(self.sign(self.predicate())),
                     "--artifact"]
        for artifact, status in ((self.candidate, 0), (self.folder / "none.py", 1)):
            with open("/dev/full", "w") as full:
                done = subprocess.run(arguments + [str(artifact), "--json", str(self.folder / "none" / "gate.json")], stdout=full,
                                      stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, status, done.stderr)

    def test_colour(self):
        """Protects the reader of a log: colour on a terminal alone (test_admits has the other half)."""
        terminal, end = pty.openpty()
        try:
            done = subprocess.run([str(ROOT / "fractus-verify"), "gate", "--policy", str(self.policy()), "--envelope",
                                   str(self.folder / "none.json"), "--artifact", str(self.candidate)], stdout=end, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"\033[1;31mREFUSED\033[0m", os.read(terminal, 4096))
        finally:
            os.close(terminal)
            os.close(end)

    def test_large_artifact(self):
        """Protects the digest: the last byte of a large file counts as the first does."""
        large = self.folder / "model.so"
        with open(large, "wb") as file:
            file.truncate(100 << 20)
        def digest():
            with open(large, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()
        predicate = self.predicate() | {"candidate_subjects": ["model.so"]}
        envelope = self.sign(predicate, "large.json", {"model.so": {"sha256": digest()}})
        self.assertEqual(self.gate(envelope=envelope, artifact=large).returncode, 0)
        with open(large, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\1")
        self.assertEqual(self.gate(envelope=envelope, artifact=large).returncode, 1)

    def ci_gate(self, *arguments, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRACTUS_")}
        environment |= {"FRACTUS_POLICY": str(self.policy()), "FRACTUS_ENVELOPE": str(self.sign(self.predicate())),
                        "FRACTUS_GATE_JSON": str(self.folder / "ci.json")} | {k: str(v) for k, v in variables.items()}
        return subprocess.run([str(GATE), *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                              env=environment, cwd=self.folder)

    def test_ci_gate(self):
        """Protects a deployment: the script's status is the gate's, and no answer of an earlier run stays behind."""
        file = self.folder / "ci.json"
        done = self.ci_gate(self.candidate)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIs(json.loads(file.read_text())["admitted"], True)
        done = self.ci_gate(self.candidate, FRACTUS_ENVELOPE=self.folder / "none.json")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIs(json.loads(file.read_text())["admitted"], False)
        self.assertEqual(self.ci_gate(self.candidate, FRACTUS_POLICY=self.folder / "none.toml").returncode, 64)
        self.assertFalse(file.exists())
        self.assertEqual(self.ci_gate().returncode, 64)
        self.assertEqual(self.ci_gate(self.candidate, FRACTUS_POLICY_SHA256="").returncode, 64)  # set, and lost on its way
        self.assertEqual(self.ci_gate(self.candidate, FRACTUS_POLICY_SHA256="0" * 64).returncode, 1)
        self.assertEqual(self.ci_gate(self.candidate, "--", "--machine", self.folder / "none.json").returncode, 64)

    def test_policy_to_copy(self):
        """Protects who copies ci/policy.toml: it is read, and as strict as a policy that says nothing."""
        folder = self.folder / "copied"
        folder.mkdir()
        shutil.copy(ROOT / "ci" / "policy.toml", folder)
        shutil.copy(self.folder / "ci.pub.pem", folder)
        members = []
        for policy in (folder / "policy.toml", self.policy()):
            file = self.folder / "members.json"
            self.gate("--json", file, policy=policy)
            members.append(json.loads(file.read_text())["policy"]["members"])
        listed = {k["name"]: k["contract_version"] for k in self.kernels()}
        self.assertEqual(members[0].pop("kernels"), listed)
        members[1].pop("kernels")
        self.assertEqual(members[0], members[1])

    def kernels(self):
        file = self.folder / "list.json"
        self.assertEqual(run("list", "--json", file).returncode, 0)
        return json.loads(file.read_text())["kernels"]

    def test_verdict_of_a_run(self):
        """Protects the way as a whole: what --sign writes of a run is what the gate reads, and one property alone is no verdict."""
        report = self.folder / "report"
        done = run("--candidate", "chunked", "--preset", "smoke", "--dtype", "float32", "--only", "exact", "--report", report, "--sign",
                   self.folder / "ci.pem")
        self.assertEqual(done.returncode, 2, done.stderr)
        worker = ROOT / "build" / "release" / "bin" / "fractus-worker"
        answer = self.folder / "run.json"
        done = self.gate("--json", answer, envelope=report / "envelope.json", artifact=worker,
                         policy=self.policy('preset = "smoke"\ndtypes = ["float32"]\n'))
        self.assertEqual(done.returncode, 1, done.stderr)
        checks = {r["check"] for r in json.loads(answer.read_text())["refusals"]}
        self.assertEqual(checks, {"verdict", "extent", "power"}, done.stdout)
        self.assertIn("wanted EQUIVALENT, got PARTIAL", done.stdout)


if __name__ == "__main__":
    unittest.main()
