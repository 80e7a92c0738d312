"""The command line from outside: statuses, messages, files. Each test says what it protects."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT.parent / "shared" / "golden"


def run(*arguments, **options):
    return subprocess.run([str(ROOT / "fractus-verify"), *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, **options)


class Usage(unittest.TestCase):
    """Protects the newcomer: what does not exist is named, with the nearest thing that does, and status 64."""

    def refused(self, wanted, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn(wanted, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_unknown_names(self):
        self.refused("did you mean chunked", "--candidate", "chunkd")
        self.refused("did you mean linear_attention", "--kernel", "linear_atention", "--candidate", "chunked")
        self.refused("did you mean rounding", "--candidate", "chunked", "--only", "roundin")
        self.refused("did you mean shared-edges", "--candidate", "chunked", "--waive", "shared-edge")
        self.refused("did you mean float32", "--candidate", "chunked", "--dtype", "float23")
        self.refused("did you mean block", "--candidate", "chunked:blok=3")
        self.refused("did you mean oracle", "bench", "oracel")

    def test_bad_values(self):
        self.refused("no candidate", )
        self.refused("--budget", "--candidate", "chunked", "--budget", "soon")
        self.refused("--budget", "--candidate", "chunked", "--budget=-3s")
        for block in ("0", "-1", "x", "", "1.5"):
            self.refused("block=N", "--candidate", f"chunked:block={block}")
        self.refused("", "--seed", "-1", "--candidate", "chunked")
        self.refused("", "--no-such-option")
        self.refused("", "no_such_command")


class Verdicts(unittest.TestCase):
    """Protects scripts: the statuses of DESIGN.md, the JSON fields, plain output in a pipe."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.right = run("--candidate", "chunked_tail", "--preset", "smoke", "--json", cls.folder / "r.json", "--report", cls.folder / "right")
        cls.result = json.loads((cls.folder / "r.json").read_text())

    def test_equivalent(self):
        self.assertEqual(self.right.returncode, 0, self.right.stdout)
        self.assertEqual(self.result["verdict"], "EQUIVALENT")
        self.assertIn("EQUIVALENT  linear_attention chunked_tail", self.right.stdout)
        self.assertNotIn("\033", self.right.stdout + self.right.stderr)
        self.assertTrue((self.folder / "right" / "report.md").read_text().startswith("# EQUIVALENT"))

    def test_json_fields(self):
        kinds = {"verdict": str, "kernel": str, "candidate": str, "plan_hash": str, "seed": int, "seconds": float}
        for field, kind in kinds.items():
            self.assertIsInstance(self.result[field], kind, field)
        for entry in self.result["properties"]:
            self.assertIsInstance(entry["name"], str)
            self.assertIsInstance(entry["verdict"], str)
            self.assertIsInstance(entry["cases"], int)
            self.assertIsInstance(entry["worst_ratio"], (int, float))
            self.assertIsInstance(entry["undecidable"], int)
        self.assertEqual(self.result["mutants"]["killed"], self.result["mutants"]["total"])
        self.assertEqual(self.result["mutants"]["survivors"], [])

    def test_different_failed_undecided(self):
        for form, status in (("wrong_exclusive_sum", 1), ("wrong_throws_at_one_token", 4)):
            done = run("--candidate", form, "--preset", "smoke", "--only", "contract", "--report", self.folder / form)
            self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(run("--candidate", "chunked", "--preset", "smoke", "--only", "memory", "--report", self.folder).returncode, 2)
        self.assertEqual(run("--candidate", "chunked", "--budget", "1ms", "--report", self.folder).returncode, 2)

    def test_same_seed_same_plan(self):
        def plan(seed):
            done = run("--candidate", "chunked", "--budget", "1ms", "--seed", seed, "--json", "-", "--report", self.folder)
            return json.loads(done.stdout)["plan_hash"]  # and nothing but JSON on standard output
        self.assertEqual(plan(5), plan(5))
        self.assertNotEqual(plan(5), plan(6))


class Reports(unittest.TestCase):
    """Protects the verdict from the disk: it is printed, with its status, whatever happens to the files."""

    def test_unwritable(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            file.write_text("kept")
            for arguments in (("--report", file), ("--report", file / "under"), ("--report", "/proc/none"),
                              ("--json", "/dev/full/x", "--report", folder), ("--json", "/proc/none.json", "--report", folder)):
                done = run("--candidate", "chunked", "--budget", "1ms", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("UNDECIDED", done.stdout)
                self.assertIn("was not written", done.stderr)
            self.assertEqual(file.read_text(), "kept")
            self.assertEqual([name for name in os.listdir(folder) if name not in ("file", "report.md", "report.json")], [])


class Fixtures(unittest.TestCase):
    """Protects replay: an edited file is refused by field, with status 64; a whole one shows its failure again."""

    @classmethod
    def setUpClass(cls):
        done = run("--candidate", "wrong_sign_lost", "--preset", "smoke", "--only", "rounding", "--json", "-")
        cls.witness = json.loads(done.stdout)["properties"][0]["witness"]
        cls.file = pathlib.Path(cls.witness["fixture"])
        if not cls.file.is_absolute():
            cls.file = pathlib.Path.cwd() / cls.file
        cls.fixture = json.loads(cls.file.read_text())

    def replay(self, fixture, status, words):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(fixture if isinstance(fixture, str) else json.dumps(fixture))
            file.flush()
            done = run("replay", file.name)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertIn(words, done.stderr + done.stdout)

    def edited(self, path, value):
        fixture = json.loads(json.dumps(self.fixture))
        place = fixture
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return fixture

    def test_shows_the_failure(self):
        done = run("replay", self.file)
        self.assertEqual(done.returncode, 1)
        for word in ("expected", "radius", "tolerance", "got", "DIFFERENT"):
            self.assertIn(word, done.stdout)
        self.assertEqual(run("replay", self.file, "--candidate", "chunked").returncode, 0)

    def test_malformed(self):
        self.replay("not JSON", 64, "not JSON")
        self.replay("[]", 64, "wanted an object")
        self.replay(json.dumps(self.fixture)[:-30], 64, "not JSON")
        for name in self.fixture:
            if name in ("found", "inputs"):
                continue
            broken = {key: value for key, value in self.fixture.items() if key != name}
            self.replay(broken, 64, f"'{name}'")
        self.replay(self.edited(["format"], "another"), 64, "'format'")
        self.replay(self.edited(["case", "property"], "no_such"), 64, "'property'")
        self.replay(self.edited(["case", "kernel"], "no_such"), 64, "'kernel'")
        self.replay(self.edited(["case", "dtype"], "float16"), 64, "float16")
        self.replay(self.edited(["case", "dims", "T"], -1), 64, "T")
        self.replay(self.edited(["case", "dims", "T"], 10**15), 64, "T")
        self.replay(self.edited(["case", "dims", "T"], "three"), 64, "'dims'")
        self.replay(self.edited(["inputs", 0], None), 64, "q")
        self.replay(self.edited(["inputs", 0, "values"], [1.0] * 1000), 64, "values")
        self.replay(self.edited(["inputs", 0, "shape"], [9, 9, 9]), 64, "shape")
        self.replay(self.edited(["candidate"], "no_such_form"), 64, "no_such_form")

    def test_huge_case_without_values(self):
        fixture = self.edited(["case", "dims", "T"], 10**12)
        for name in ("inputs", "cotangents", "units", "cotangent_units"):
            fixture.pop(name)
        self.replay(fixture, 64, "elements")

    def test_unreadable(self):
        self.assertEqual(run("replay", "/no/such/file").returncode, 64)
        self.assertEqual(run("replay", ROOT).returncode, 64)


class Golden(unittest.TestCase):
    """Protects the golden check: a broken index is refused by field, and nothing checked is not success."""

    def test_broken_index(self):
        with tempfile.TemporaryDirectory() as folder:
            index = pathlib.Path(folder) / "index.json"
            self.assertEqual(run("golden", folder).returncode, 64)
            for text, words in (("{", "not JSON"), ("{}", "'cases'"), ('{"cases": [{"file": "x.pt"}]}', "'kernel'"),
                                ('{"cases": []}', "nothing was checked"),
                                ('{"cases": [{"file": "x.pt", "kernel": "linear_attention"}]}', "x.pt")):
                index.write_text(text)
                done = run("golden", folder)
                self.assertEqual(done.returncode, 64, done.stdout)
                self.assertIn(words, done.stderr)

    @unittest.skipUnless(GOLDEN.exists(), "the specification's golden tensors are not beside the checkout")
    def test_recorded_tensors(self):
        done = run("golden", GOLDEN)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("skipped gate_e8.pt (moe_gate)", done.stdout)


class Fuzz(unittest.TestCase):
    """Protects the nightly search: it ends at a failure, shrunk, and counts what it ran."""

    def test_finds_and_counts(self):
        done = run("fuzz", "--candidate", "wrong_S0_transposed", "--cases", 500, "--json", "-")
        self.assertEqual(done.returncode, 1)
        self.assertLessEqual(json.loads(done.stdout)["smallest"]["dims"]["T"], 4)
        done = run("fuzz", "--candidate", "chunked", "--cases", 60, "--json", "-")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sum(json.loads(done.stdout)["by_property"].values()), 60)


if __name__ == "__main__":
    unittest.main()
