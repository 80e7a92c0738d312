"""What a pipeline calls: ci/nightly, ci/pod, and the scripts in the files for GitLab and GitHub, as far as they run without the service.

A stand-in for the program says what it was asked and answers as it is told to, so that nothing here takes long; what the real one does
is tested elsewhere. Needs PyYAML, which ci/test installs."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_IN = '''#!/usr/bin/env python3
import json, os, pathlib, sys, time
root = pathlib.Path(__file__).resolve().parent
with open(root / "asked.txt", "a") as asked:
    asked.write(json.dumps(sys.argv[1:]) + "\\n")
answers = json.loads((root / "answers.json").read_text())
argument = lambda name: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None
command = sys.argv[1]
if command == "list":
    print(json.dumps({"kernels": [{"name": "kernel", "waivers": ["shared-edges"], "forms": [{"name": n, "role": r} for n, r in
        (("plain", "reference"), ("fast", "candidate"), ("second", "candidate"), ("wrong_sign", "wrong"))]}]}))
    sys.exit(0)
if command == "gate":
    print("a line of the gate")
    sys.exit(answers.get("gate", 0))
if command == "replay":
    sys.exit(answers.get("replay", 0))
if command == "fuzz":
    form = argument("--candidate")
    status = answers.get(form, 0)
    time.sleep(answers.get("seconds", 0))
    if status == 70:
        print("the form <b>crashed</b>", file=sys.stderr)
        sys.exit(70)
    answer = {"cases": 10, "elements": 100, "undecidable": 0, "by_property": {}, "worst_ratio": {"float32 y": 0.25}, "seconds": 0.1}
    if status:
        fixture = pathlib.Path("fixtures/found/" + form + ".json")
        (root / fixture).parent.mkdir(parents=True, exist_ok=True)
        (root / fixture).write_text("{}")
        answer |= {"finding": {"text": "y | \\x01 <b> is off"}, "fixture": str(fixture), "replay": "./fractus-verify replay " + str(fixture)}
    pathlib.Path(argument("--json")).write_text(json.dumps(answer))
    sys.exit(status)
folder = pathlib.Path(argument("--report"))
folder.mkdir(parents=True, exist_ok=True)
for name in ("report.md", "report.html", "report.json", "junit.xml") + (("envelope.json",) if argument("--sign") else ()):
    (folder / name).write_text(name + "\\n")
if argument("--sign"):
    key = pathlib.Path(argument("--sign"))
    assert key.read_text() == "the key\\n" and key.stat().st_mode & 0o077 == 0, "a key that others may read is refused"
sys.exit(answers.get("verify", 0))
'''


class Checkout(unittest.TestCase):
    """A folder with the project's ci/ and the stand-in as its launcher."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "ci", self.root / "ci")
        (self.root / "fractus-verify").write_text(STAND_IN)
        (self.root / "fractus-verify").chmod(0o755)
        self.answer()

    def answer(self, **answers):
        (self.root / "answers.json").write_text(json.dumps(answers))

    def asked(self):
        file = self.root / "asked.txt"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def run_in(self, *command, **environment):
        # PATH without an installed fractus-verify: ci/pod prefers that.
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=60, env=os.environ | environment)


class Nightly(Checkout):
    def night(self, *more, wanted=0):
        done = self.run_in("ci/nightly", "--budget", "30s", *more)
        self.assertEqual(done.returncode, wanted, done.stdout + done.stderr)
        folder = self.root / "build" / "nightly"
        return json.loads((folder / "report.json").read_text()), (folder / "report.md").read_text(), xml.parse(folder / "junit.xml").getroot()

    def fuzzed(self):
        return [(a[a.index("--candidate") + 1], int(a[a.index("--seed") + 1])) for a in self.asked() if a[0] == "fuzz"]

    def test_every_right_form_goes_on_where_it_ended(self):
        """Protects: references and candidates, no known-wrong form; each night draws from the next seed; cases add up."""
        self.night()
        self.assertEqual(sorted(self.fuzzed()), [("fast", 1), ("plain", 1), ("second", 1)])
        # A reference may break where the contract says that it does; nothing else may.
        self.assertEqual([a[a.index("--candidate") + 1] for a in self.asked() if "--waive" in a], ["plain"])
        report, page, suite = self.night()
        self.assertEqual(sorted(self.fuzzed()[3:]), [("fast", 2), ("plain", 2), ("second", 2)])
        self.assertEqual([row["total"] for row in report["rows"]], [20, 20, 20])
        self.assertTrue(page.startswith("# NOTHING FOUND: 3 of 3 forms, 30 cases"))
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("3", "0"))

    def test_a_failure_is_kept_until_it_passes(self):
        """Protects: status 1, the shrunk file kept beside the state, tried again first, and dropped once it passes."""
        self.answer(fast=1)
        report, page, suite = self.night(wanted=1)
        self.assertEqual(report["verdict"], "FOUND")
        self.assertIn("&lt;b> is off", page)
        self.assertEqual(suite.get("failures"), "1")
        kept = self.root / "build" / "nightly" / "failures" / "fast.json"
        self.assertTrue(kept.exists())
        self.answer(replay=1)
        report, page, _ = self.night(wanted=1)
        self.assertEqual([f["form"] for f in report["open"]], ["fast"])
        self.assertIn("Failures of earlier nights", page)
        self.answer()
        report, _, _ = self.night()
        self.assertEqual(report["open"], [])

    def test_no_answer_is_no_pass(self):
        """Protects: a form on which the search itself breaks is reported, and the others are still searched."""
        self.answer(plain=70)
        report, page, _ = self.night(wanted=1)
        self.assertEqual([row["verdict"] for row in report["rows"] if row["form"] == "plain"], ["no answer, status 70"])
        self.assertEqual(len(report["rows"]), 3)
        self.assertIn("&lt;b>crashed", page)

    def test_stopped(self):
        """Protects: a night that is stopped keeps what was finished, names what was not reached, and starves nobody after it."""
        self.answer(seconds=2)
        process = subprocess.Popen(["ci/nightly", "--budget", "5m"], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = process.stdout.readline()  # the first form has ended, the second one is under way
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=30)[1], None)
        self.assertIn("passed", first)
        report = json.loads((self.root / "build" / "nightly" / "report.json").read_text())
        self.assertEqual((len(report["rows"]), len(report["not_reached"])), (1, 2))
        self.answer()
        before = self.fuzzed()[0][0]
        earlier = len(self.fuzzed())
        self.night()
        self.assertEqual(self.fuzzed()[earlier:][-1], (before, 2))

    def test_a_broken_state_is_no_new_beginning(self):
        """Protects: seeds and kept failures are not thrown away without a word."""
        state = self.root / "build" / "nightly" / "state.json"
        state.parent.mkdir(parents=True)
        for text in ("{", "[]", '{"format": "another"}', '{"format": "fractus-verify nightly 1", "forms": {"a": 3}, "failures": []}'):
            state.write_text(text)
            done = self.run_in("ci/nightly", "--budget", "1s")
            self.assertEqual(done.returncode, 64, text)
            self.assertIn("state.json is not a state", done.stderr)
            self.assertEqual(state.read_text(), text)

    def test_usage(self):
        """Protects: what cannot be meant is said before anything runs."""
        for arguments, said in ((["--kernel", "kernle"], "unknown kernle"), (["--budget", "soon"], "wanted a time"), (["--budget", "0s"], "wanted a time")):
            done = self.run_in("ci/nightly", *arguments)
            self.assertEqual(done.returncode, 64)
            self.assertIn(said, done.stderr)


class Pod(Checkout):
    def pod(self, *arguments):
        return self.run_in("ci/pod", *arguments, PATH="/usr/bin:/bin")

    def test_the_program_starts_behind_the_gate_alone(self):
        """Protects: refused or broken, the program is not started; admitted, it takes the process over, status and all."""
        start = ["--policy", "p", "--", "sh", "-c", "echo started; exit 7"]
        done = self.pod(*start)
        self.assertEqual((done.returncode, done.stdout), (7, "started\n"))
        self.assertEqual(self.asked(), [["gate", "--policy", "p"]])
        for status in (1, 64, 70):
            self.answer(gate=status)
            done = self.pod(*start)
            self.assertEqual((done.returncode, done.stdout), (status, ""))

    def test_no_program(self):
        """Protects: a forgotten -- is an error, not an admitted nothing."""
        for arguments in ([], ["--policy", "p"], ["--policy", "p", "--"]):
            self.assertEqual(self.pod(*arguments).returncode, 64)
        self.assertEqual(self.asked(), [])


class Services(Checkout):
    def gitlab(self):
        return yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text())

    def github(self):
        return yaml.safe_load((ROOT / "ci" / "github-workflow.yml").read_text())

    def script(self, lines, **environment):
        return self.run_in("bash", "-eo", "pipefail", "-c", "\n".join(lines), **environment)

    def test_gitlab_verdict(self):
        """Protects: the job leaves what its artifacts name, signs with a key that others cannot read, and fails with the verdict."""
        pipeline = self.gitlab()
        job = pipeline["fractus-verify"]
        key = self.root / "key-of-the-service"
        key.write_text("the key\n")
        key.chmod(0o666)
        for status in (0, 1):
            self.answer(verify=status)
            done = self.script(job["script"], **pipeline["variables"], FRACTUS_KEY=str(key))
            self.assertEqual(done.returncode, status, done.stderr)
            self.script(job["after_script"])
            self.assertFalse((self.root / "build-key.pem").exists())
            self.assertTrue((self.root / job["artifacts"]["reports"]["junit"]).exists())
            self.assertTrue((self.root / job["artifacts"]["paths"][0] / "envelope.json").exists())
        self.assertEqual(job["artifacts"]["when"], "always")

    def test_gitlab_without_a_key(self):
        """Protects: no key, no envelope, and no option without a value."""
        pipeline = self.gitlab()
        self.assertEqual(self.script(pipeline["fractus-verify"]["script"], **pipeline["variables"]).returncode, 0)
        self.assertNotIn("--sign", self.asked()[0])

    def test_gitlab_nightly(self):
        """Protects: the night's report lies where the job's artifacts and cache look for it."""
        job = self.gitlab()["fractus-nightly"]
        done = self.script(job["script"], FRACTUS_NIGHT="5s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.root / job["artifacts"]["reports"]["junit"]).exists())
        self.assertTrue((self.root / job["cache"]["paths"][0] / "state.json").exists())

    def test_gitlab_gate(self):
        """Protects: a refusal stops the deploy; the envelope is the one that the verdict's job left."""
        pipeline = self.gitlab()
        job = pipeline["fractus-gate"]
        for status in (0, 1):
            self.answer(gate=status)
            done = self.script(job["script"], FRACTUS_ARTIFACT="kernels.py", **job["variables"])
            self.assertEqual(done.returncode, status, done.stderr)
        asked = self.asked()[0]
        self.assertEqual(asked[asked.index("--artifact") + 1], "kernels.py")
        self.assertEqual(asked[asked.index("--envelope") + 1], pipeline["fractus-verify"]["artifacts"]["paths"][0] + "envelope.json")
        self.assertEqual([asked[asked.index("--json") + 1]], job["artifacts"]["paths"])

    def test_github(self):
        """Protects: both jobs' steps in order, the summary written where the verdict failed too, and the key gone after it."""
        summary = self.root / "summary.md"
        for name, status in (("verify", 0), ("verify", 1), ("nightly", 0)):
            self.answer(verify=status)
            summary.write_text("")
            for step in self.github()["jobs"][name]["steps"]:
                if "run" not in step or step["run"].startswith("apt-get"):
                    continue
                environment = {"GITHUB_STEP_SUMMARY": str(summary), "FRACTUS_NIGHT": "5s", "FRACTUS_CANDIDATE": "chunked", "FRACTUS_OPTIONS": "",
                               "FRACTUS_KEY": "the key"}
                done = self.script([step["run"]], **environment)
                self.assertEqual(done.returncode, status if step["name"] == "verdict" else 0, done.stderr)
                if step["name"] == "summary":
                    self.assertEqual(step["if"], "always()")
            self.assertNotEqual(summary.read_text(), "")
            self.assertFalse((self.root / "build-key.pem").exists())

    def test_every_environment_name_is_said(self):
        """Protects: a variable that a job reads is named in the file's opening comment, or set in the file."""
        for file in ("gitlab-ci.yml", "github-workflow.yml"):
            text = (ROOT / "ci" / file).read_text()
            said = "".join(line for line in text.splitlines() if line.startswith("#"))
            for name in set(re.findall(r"\bFRACTUS_[A-Z_]+", text)):
                self.assertTrue(name in said or f"{name}:" in text, f"{file}: {name}")


class Image(unittest.TestCase):
    def test_the_program_finds_its_libraries(self):
        """Protects: each library that the program is linked to belongs to a package that the image's stages install, or to Debian's base."""
        program = ROOT / "build" / "release" / "bin" / "fractus-verify"
        linked = re.findall(r"=> (/\S+)", subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout)
        # dpkg knows a library under /usr or without it, as the merge of the two left it.
        spellings = lambda path: {spelling for known in (path, os.path.realpath(path)) for spelling in (known, "/usr" + known, known.removeprefix("/usr"))}
        owner = lambda path: next(filter(None, (subprocess.run(["dpkg", "-S", spelling], capture_output=True, text=True).stdout.split(":")[0]
                                                for spelling in spellings(path))), path)
        owners = {owner(path) for path in linked}
        base = {"libc6", "libstdc++6", "libgcc-s1"}
        for stage in (ROOT / "Dockerfile").read_text().split("FROM ")[2:]:
            installed, new = set(), set(re.search(r"--no-install-recommends ([^&]+)", stage)[1].split())
            while new:  # and what these depend on
                installed |= new
                depends = subprocess.run(["dpkg-query", "-W", "-f", "${Depends},", *new], capture_output=True, text=True).stdout
                new = {re.split(r"[ :]", name.strip())[0] for name in re.split(r"[,|]", depends) if name.strip()} - installed
            self.assertEqual(owners - base - installed, set(), "not in the image")

    def test_what_is_copied_is_there(self):
        """Protects: the image's build names files and folders of the checkout."""
        for source in re.findall(r"^COPY (?!--from)(\S+)", (ROOT / "Dockerfile").read_text(), re.M):
            self.assertTrue((ROOT / source).exists(), source)


if __name__ == "__main__":
    unittest.main(verbosity=1)
