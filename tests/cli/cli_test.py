"""The command line from outside: statuses, messages, files. Each test says what it protects."""
import json
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import torch_file

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
        self.refused("there are: chunked, chunked_tail, cumsum, looped, einsum", "--kernel", "linear_attention", "--candidate", "zzz")
        self.refused("unknown reference 'chunkd'; did you mean chunked", "--candidate", "chunked", "--reference", "chunkd")
        self.refused("did you mean block", "--candidate", "chunked", "--reference", "chunked_tail:blok=3")
        self.refused("there are: chunked, chunked_tail, cumsum, looped, einsum", "--candidate", "chunked", "--reference", "zzz")
        self.refused("did you mean wrong_no_cut", "fuzz", "--candidate", "wrong_no_cutt")

    def test_bad_values(self):
        self.refused("no candidate", )
        for budget in ("soon", "0", "-3s", "nan", "inf", "5d", "1e400", " 5s"):
            self.refused("--budget: wanted a time", "--candidate", "chunked", f"--budget={budget}")
        for block in ("0", "-1", "x", "", "1.5", "99999999999999999999"):
            self.refused("block=N", "--candidate", f"chunked:block={block}")
        for seed in ("-1", "x", "99999999999999999999"):
            self.refused("--seed", "--candidate", "chunked", f"--seed={seed}")
        self.refused("--preset", "--candidate", "chunked", "--preset", "lively")
        self.refused("1 to", "fuzz", "--candidate", "chunked", "--cases", "0")
        self.refused("none of the chosen properties", "fuzz", "--candidate", "chunked", "--only", "memory")
        self.refused("--candidate", "--candidate", "chunked", "--candidate", "cumsum")
        self.refused("--no-such-option", "--no-such-option")
        self.refused("no_such_command", "no_such_command")

    def test_twice(self):
        """The last of two values would win without a word."""
        self.refused("block is given twice, as 3 and as 4", "--candidate", "chunked:block=3,block=4")
        self.refused("'exact' is given twice", "--candidate", "chunked", "--only", "exact,choices,exact")
        self.refused("'shared-edges' is given twice", "--candidate", "chunked", "--waive", "shared-edges,shared-edges")
        for option in ("--seed", "--budget", "--preset", "--dtype", "--only", "--waive", "--report", "--json", "--kernel", "--reference"):
            self.refused(option, "--candidate", "chunked", option, "1", option, "2")
        self.refused("--candidate stands before the command 'fuzz'", "--candidate", "looped", "fuzz", "--candidate", "chunked")

    def test_power_alone(self):
        """It would run nothing against the candidate, and look like a measurement of it."""
        self.refused("--only power runs nothing", "--candidate", "chunked", "--only", "power")

    def test_reference_that_is_the_candidate(self):
        """It would be agreed with by itself."""
        for reference in ("chunked", "chunked:block=64"):
            self.refused(f"--reference: '{reference}' is the candidate itself", "--candidate", "chunked", "--reference", reference)
        self.refused("--candidate", "--reference", "chunked")

    def test_empty_values(self):
        """A shell variable that was never set must not become the default: --only "$ONLY" would judge everything."""
        for option in ("--candidate", "--reference", "--kernel", "--seed", "--budget", "--dtype", "--only", "--waive", "--preset", "--report", "--json"):
            self.refused(option, "--candidate", "chunked", option, "")
        self.refused("--only", "--candidate", "chunked", "--only", ",")

    def test_missing_arguments(self):
        for command, argument in (("replay", "FILE"), ("golden", "DIR"), ("bench", "WHAT")):
            self.refused(argument, command)
        self.refused("no candidate", "fuzz")

    def test_worker_that_does_not_come_up(self):
        """A form's static initialiser ends the worker before it can name the form; where to look is said all the same."""
        with tempfile.TemporaryDirectory() as folder:
            worker = pathlib.Path(folder) / "worker"
            worker.write_text("#!/bin/sh\nprintf 'what\\033[2J went wrong\\n' >&2\nkill -SEGV $$\n")
            worker.chmod(0o755)
            done = run("list", env={**os.environ, "FRACTUS_WORKER": str(worker)})
        self.assertEqual(done.returncode, 70, done.stderr)
        for words in ("signal 11", "static initialiser", "candidates/", "what\\x1b[2J went wrong"):
            self.assertIn(words, done.stderr)

    def test_list_is_quick(self):
        start = time.monotonic()
        done = run("list", "--json", "-")
        seconds = time.monotonic() - start
        print(f"list: {seconds:.2f} s")
        self.assertLess(seconds, 5)  # 1 s is wanted; the margin is for a busy machine
        forms = json.loads(done.stdout)["kernels"][0]["forms"]
        self.assertLessEqual({"einsum", "looped", "cumsum", "chunked", "chunked_tail"}, {form["name"] for form in forms})


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
        for field in ("killed", "total"):
            self.assertIsInstance(self.result["mutants"][field], int)
        self.assertEqual(self.result["mutants"]["killed"], self.result["mutants"]["total"])
        self.assertEqual(json.loads((self.folder / "right" / "report.json").read_text()), self.result)
        self.assertEqual(self.result["mutants"]["survivors"], [])

    def test_different_failed_undecided(self):
        for form, status in (("wrong_exclusive_sum", 1), ("wrong_throws_at_one_token", 4)):
            done = run("--candidate", form, "--preset", "smoke", "--only", "contract", "--report", self.folder / form)
            self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(run("--candidate", "chunked", "--preset", "smoke", "--only", "memory", "--report", self.folder).returncode, 2)
        cut = run("--candidate", "chunked", "--budget", "1ms", "--report", self.folder)
        self.assertEqual(cut.returncode, 2)
        self.assertIn("the budget of 1 ms was spent", cut.stdout)

    def test_reference(self):
        """Both forms are judged; the run without a reference keeps its plan, and one that is wrong takes the verdict with it."""
        arguments = ("--candidate", "chunked", "--preset", "smoke", "--dtype", "float32", "--only", "rounding,exact", "--json", "-", "--report", self.folder)
        alone, beside = run(*arguments), run(*arguments, "--reference", "chunked:block=16")
        self.assertEqual((alone.returncode, beside.returncode), (2, 2), alone.stderr + beside.stderr)
        self.assertNotIn("reference", json.loads(alone.stdout))
        result = json.loads(beside.stdout)
        self.assertNotEqual(result["plan_hash"], json.loads(alone.stdout)["plan_hash"])
        reference = result["reference"]
        self.assertEqual((reference["name"], reference["settings"], reference["verdict"]), ("chunked", {"block": 16}, "PASSED"))
        self.assertEqual([p["name"] for p in reference["properties"]], [p["name"] for p in result["properties"]])
        rounding, its = (next(p for p in some["properties"] if p["name"] == "rounding") for some in (result, reference))
        self.assertEqual(its["cases"], rounding["planned"])
        for tensor, sum_of_both in its["apart"].items():
            self.assertAlmostEqual(sum_of_both, rounding["ratios"][tensor] + its["ratios"][tensor])
        self.assertEqual(reference["apart"], max(its["apart"].values()))
        page = (self.folder / "report.md").read_text()
        self.assertIn("## The reference", page)
        self.assertIn("--candidate chunked:block=64 --reference chunked:block=16", page)

    def test_wrong_reference(self):
        done = run("--candidate", "chunked", "--reference", "wrong_scores_scaled", "--preset", "smoke", "--only", "rounding",
                   "--json", self.folder / "w.json", "--report", self.folder)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("the reference 'wrong_scores_scaled' itself fails rounding at rounding float", done.stdout)
        result = json.loads((self.folder / "w.json").read_text())
        failed = result["reference"]["properties"][0]
        self.assertEqual((result["reference"]["verdict"], failed["verdict"]), ("DIFFERENT", "DIFFERENT"))
        self.assertIn(failed["witness"]["replay"], result["reasons"][0])
        self.assertIn("The reference's witness: rounding", (self.folder / "report.md").read_text())
        self.assertEqual(run("replay", failed["witness"]["fixture"]).returncode, 1)

    def test_same_seed_same_plan(self):
        def plan(seed):
            done = run("--candidate", "chunked", "--budget", "1ms", "--seed", seed, "--json", "-", "--report", self.folder)
            return json.loads(done.stdout)["plan_hash"]  # and nothing but JSON on standard output
        self.assertEqual(plan(5), plan(5))
        self.assertNotEqual(plan(5), plan(6))


class Reports(unittest.TestCase):
    """Protects the verdict from the disk: it is printed, with its status, whatever happens to the files."""

    QUICK = ("--candidate", "chunked", "--budget", "1ms")  # UNDECIDED, status 2

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def stands(self, done):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("was not written", done.stderr)
        self.assertIn("UNDECIDED", done.stdout)

    def device(self, minor):
        """A device of our own: the machine's are never put at risk by a test."""
        path = self.folder / f"device{minor}"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            path.open("wb").close()
        except OSError:
            self.skipTest("making a device needs root")
        return path

    def test_unwritable(self):
        file = self.folder / "file"
        file.write_text("kept")
        for arguments in (("--report", file), ("--report", file / "under"), ("--report", "/proc/none"),
                          ("--json", file / "x", "--report", self.folder), ("--json", "/proc/none.json", "--report", self.folder),
                          ("--json", self.folder, "--report", self.folder)):
            self.stands(run(*self.QUICK, *arguments))
        self.assertEqual(file.read_text(), "kept")
        self.assertEqual(sorted(os.listdir(self.folder)), ["file", "junit.xml", "report.html", "report.json", "report.md"])

    def test_full_device(self):
        full = self.device(7)
        self.stands(run(*self.QUICK, "--report", self.folder, "--json", full))
        self.assertTrue(stat.S_ISCHR(full.stat().st_mode), "the device was replaced by a file")

    def test_null_device_stays(self):
        null = self.device(3)
        done = run(*self.QUICK, "--report", self.folder, "--json", null)
        self.assertNotIn("was not written", done.stderr)
        self.assertTrue(stat.S_ISCHR(null.stat().st_mode), "the device was replaced by a file")

    def test_link_and_pipe(self):
        (self.folder / "target").write_text("old")
        (self.folder / "link").symlink_to("target")
        run(*self.QUICK, "--report", self.folder, "--json", self.folder / "link")
        self.assertTrue((self.folder / "link").is_symlink())
        json.loads((self.folder / "target").read_text())
        os.mkfifo(self.folder / "pipe")
        with subprocess.Popen(["cat", self.folder / "pipe"], stdout=subprocess.PIPE) as reader:
            run(*self.QUICK, "--report", self.folder, "--json", self.folder / "pipe")
            json.loads(reader.stdout.read())

    def test_full_standard_output(self):
        with open("/dev/full", "w") as full:
            for more in ((), ("--json", "-")):
                done = subprocess.run([ROOT / "fractus-verify", *self.QUICK, "--report", self.folder, *more], stdout=full,
                                      stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("was not written", done.stderr)

    def test_closed_streams(self):
        """Their numbers would go to the next files that are opened, the worker's socket among them."""
        for program in ("./fractus-verify", "build/release/bin/fractus-verify"):
            for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
                result = self.folder / "result.json"
                result.unlink(missing_ok=True)
                command = f"{program} {' '.join(self.QUICK)} --report {self.folder} --json {result} {closed}"
                done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(done.returncode, 2, (command, done.stderr))
                self.assertEqual(json.loads(result.read_text())["verdict"], "UNDECIDED")
            refused = subprocess.run(f"{program} --candidate chunkd 2>&-", shell=True, cwd=ROOT)
            self.assertEqual(refused.returncode, 64)

    def test_reader_that_goes_away(self):
        """`| head -1`: the verdict keeps its status and its files; a list, which is nothing but output, ends as usual."""
        for stream in ("stdout", "stderr"):
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run([ROOT / "fractus-verify", *self.QUICK, "--report", self.folder],
                                  **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writing})
            self.assertEqual(done.returncode, 2, stream)
            self.assertIn("report.json", os.listdir(self.folder))
            listed = subprocess.run([ROOT / "fractus-verify", "list"], stdout=writing, stderr=subprocess.PIPE)
            os.close(writing)
            self.assertEqual((listed.returncode, listed.stderr), (-signal.SIGPIPE, b""))

    def test_interrupt(self):
        """Ctrl-C ends the run and its workers by that signal, and leaves no file that is half a file."""
        for number in (signal.SIGINT, signal.SIGTERM):
            run_of_it = subprocess.Popen([ROOT / "fractus-verify", "--candidate", "wrong_sign_lost", "--report", self.folder],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for line in run_of_it.stderr:
                if line.startswith("exact"):
                    break
            started = pathlib.Path(f"/proc/{run_of_it.pid}/task/{run_of_it.pid}/children").read_text().split()
            self.assertNotEqual(started, [])
            run_of_it.send_signal(number)
            self.assertEqual(run_of_it.wait(timeout=10), -number)
            run_of_it.stderr.close()
            for _ in range(100):
                left = [pid for pid in started if os.path.exists(f"/proc/{pid}/fd/0")]
                if left:
                    time.sleep(0.05)
            self.assertEqual(left, [])
            self.assertEqual(os.listdir(self.folder), [])

    def test_report_is_of_one_run(self):
        """report.md of one run beside report.json of another would be read as one report."""
        self.assertEqual(run(*self.QUICK, "--report", self.folder).returncode, 2)
        before = {name: (self.folder / name).read_text() for name in os.listdir(self.folder)}
        self.assertEqual(sorted(before), ["junit.xml", "report.html", "report.json", "report.md"])
        (self.folder / "report.json").unlink()
        (self.folder / "report.json").mkdir()
        self.stands(run(*self.QUICK, "--report", self.folder, "--seed", 9))
        self.assertEqual((self.folder / "report.md").read_text(), before["report.md"])

    def test_other_commands(self):
        self.assertEqual(run("fuzz", "--candidate", "chunked", "--cases", 3, "--json", "/proc/none").returncode, 0)
        done = run("fuzz", "--candidate", "wrong_sign_lost", "--only", "rounding", "--json", "/proc/none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("replay", done.stdout)


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
        self.replay("", 64, "not JSON")
        self.replay("1e999", 64, "not JSON")

    def test_malformed_inside(self):
        for name in self.fixture["case"]:
            case = {key: value for key, value in self.fixture["case"].items() if key != name}
            self.replay(self.edited(["case"], case), 64, f"'{name}'")
            self.replay(self.edited(["case", name], None), 64, f"'{name}'")
        for name in ("name", "shape", "values"):
            self.replay(self.edited(["inputs", 0, name], None), 64, f"tensor q: field '{name}'")
        self.replay(self.edited(["inputs", 0, "shape"], [-1, 1, 1]), 64, "wanted q of shape")
        self.replay(self.edited(["inputs"], self.fixture["inputs"][:-1]), 64, "wanted 5 tensors")
        self.replay(self.edited(["case", "dims", "T"], 1.5), 64, "'dims'")
        self.replay(self.edited(["case", "dims", "\033[2J"], 1), 64, "wanted extents of G, T, D, got one of '\\x1b[2J'")
        self.replay(self.edited(["case", "dims", "T"], 2**64), 64, "'dims'")
        self.replay(self.edited(["case", "seed"], -1), 64, "'seed'")
        self.replay(self.edited(["case", "dtype"], "int64"), 64, "'dtype'")
        self.replay(self.edited(["case", "settings"], {"block": 0}), 64, "block")
        self.replay(self.edited(["settings"], {"block": -5}), 64, "block")
        self.replay(self.edited(["settings"], {"blok": 5}), 64, "blok")
        self.replay(self.edited(["case", "settings"], {"blok": 5}), 64, "blok")
        for name in ("absent", "frozen", "cotangents"):
            self.replay(self.edited(["case", name], ["nope"]), 64, f"'{name}'")
            twice = self.fixture["case"][name] or ["S0" if name != "cotangents" else "y"]
            self.replay(self.edited(["case", name], twice * 2), 64, "twice")
        self.replay(self.edited(["case", "absent"], ["q"]), 64, "wanted optional inputs (S0, z0), got 'q'")
        self.replay(self.edited(["case", "fill"], "fetaure"), 64, "field 'fill': wanted one of feature")

    def test_presence(self):
        """What the case says of its tensors and what the file holds of them are one thing."""
        case = self.fixture["case"]
        given = "S0" in case["absent"]
        self.replay(self.edited(["case", "absent"], [] if given else ["S0", "z0"]), 64, "says the opposite")
        self.replay(self.edited(["case", "cotangents"], [] if case["cotangents"] else ["y"]), 64, "says the opposite")

    def test_values(self):
        """A number that the dtype does not hold would be judged as another one."""
        self.assertEqual(self.fixture["case"]["dtype"], "float32")
        for text in ("1e40", "-1e40", "0.1", "1e-50", "16777217", "9007199254740993", "123456789012345678901234567890"):
            fixture = json.dumps(self.edited(["inputs", 1, "values", 0], "HERE")).replace('"HERE"', text)
            self.replay(fixture, 64, "tensor k': wanted float32 numbers, got ")
        for value in (None, "nan", True, [1.0]):
            self.replay(self.edited(["inputs", 1, "values", 0], value), 64, "tensor k: field 'values'")
        self.replay(json.dumps(self.edited(["inputs", 1, "values", 0], "HERE")).replace('"HERE"', "NaN"), 64, "not JSON")

    def test_only_regular_files(self):
        """A pipe that nobody writes to, and a device without an end, would hold the command for ever."""
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            for file in (pipe, "/dev/zero", "/dev/null"):
                done = run("replay", file)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn("no regular file", done.stderr)
            large = pathlib.Path(folder) / "large.json"
            with large.open("wb") as file:
                file.truncate(2**27)
            self.assertIn("larger than", run("replay", large).stderr)

    def test_another_property(self):
        """A case that is none of its property's: refused, not run without what the property needs."""
        self.replay(self.edited(["case", "property"], "repeat"), 64, "variant")
        self.replay(self.edited(["case", "property"], "carry"), 64, "pieces")
        carry = self.edited(["case", "property"], "carry")
        for pieces in ([-1, 1 + carry["case"]["dims"]["T"]], [2**63 - 1, 2**63 - 1]):
            carry["case"]["pieces"] = pieces
            self.replay(carry, 64, "'pieces'")

    def test_huge_case_without_values(self):
        fixture = self.edited(["case", "dims", "T"], 10**12)
        for name in ("inputs", "cotangents"):
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
                self.assertEqual(done.stdout, "")

    def folder_of(self, tensors):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        (path / "index.json").write_text(json.dumps({"cases": [{"file": "t.pt", "kernel": "linear_attention"}]}))
        if isinstance(tensors, bytes):
            (path / "t.pt").write_bytes(tensors)
        else:
            torch_file.write(path / "t.pt", tensors)
        return path

    def test_tensors(self):
        right = torch_file.ONE_TOKEN
        self.assertEqual(run("golden", self.folder_of(right)).returncode, 0)
        self.assertEqual(run("golden", self.folder_of({**right, "y": ((1, 1, 1), [1.5])})).returncode, 1)
        without = lambda name: {key: value for key, value in right.items() if key != name}
        for tensors, words in ((without("q"), "'q' is missing"), (without("y_f64"), "'y_f64' is missing"),
                               (without("gz"), "'gz' is missing"), ({}, "'q' is missing"),
                               ({**right, "q": 5}, "'q' is missing"),
                               ({**right, "q": ((1,), [1.0])}, "'q': wanted shape (1, 1, 1), got (1)"),
                               ({**right, "dk": ((2, 1, 1), [1.0, 1.0])}, "'dk': wanted shape (1, 1, 1), got (2, 1, 1)"),
                               ({**right, "v": ((10**9, 10**9, 4), [1.0], (0, 0, 0))}, "t.pt"),
                               # What torch's own reader believes: read as it stands, each would be a read out of bounds.
                               ({**right, "q": ((1, 1, 1), [1.0], (1, 1, 1), 0, 10**6)}, 0),
                               ({**right, "q": ((1, 1, 1), [1.0], (1, 1, 1), 1)}, "'q': shape (1, 1, 1)"),
                               ({**right, "q": ((1, 1, 1), [1.0], (1, 1, 1), -1)}, "'q': "),
                               ({**right, "q": ((1, 1, 2), [1.0], (1, 1, 2**62))}, "reach beyond its storage of 4 bytes"),
                               ({**right, "q": ((100, 10, 10), [1.0], (100, 10, 1), 0, 10**4)}, "'q': shape (100, 10, 10)"),
                               ({**right, "q": ((-1, 1, 1), [1.0])}, "overflow"),
                               (b"", "t.pt"), (b"not a pickle", "t.pt")):
            done = run("golden", self.folder_of(tensors))
            if words == 0:
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                continue
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)
            self.assertIn("t.pt", done.stderr)

    def test_only_regular_files(self):
        """A pipe that nobody writes to, and a device without an end, would hold the command for ever."""
        path = self.folder_of({})
        for name in ("t.pt", "index.json"):
            (path / name).unlink()
            os.mkfifo(path / name)
            done = run("golden", path)
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(name, done.stderr)
            self.assertIn("no regular file", done.stderr)
        with open(self.folder_of({}) / "t.pt", "r+b") as large:
            large.truncate(2**30 + 1)
            done = run("golden", pathlib.Path(large.name).parent)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn("wanted at most", done.stderr)

    @unittest.skipUnless(GOLDEN.exists(), "the specification's golden tensors are not beside the checkout")
    def test_recorded_tensors(self):
        done = run("golden", GOLDEN)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("skipped engine_v97.pt (engine)", done.stdout)
        for file in ("gate_e8_ties.pt", "kuramoto_4steps.pt", "moe_sparse_lowrank.pt", "block_c37_ragged.pt"):
            self.assertRegex(done.stdout, rf"passed {file} .*recorded float64")


class Fuzz(unittest.TestCase):
    """Protects the nightly search: it ends at a failure, shrunk, and counts what it ran."""

    def test_finds_and_counts(self):
        done = run("fuzz", "--kernel", "linear_attention", "--candidate", "wrong_S0_transposed", "--cases", 500, "--json", "-")
        self.assertEqual(done.returncode, 1)
        self.assertLessEqual(json.loads(done.stdout)["smallest"]["dims"]["T"], 4)
        done = run("fuzz", "--candidate", "chunked", "--cases", 60, "--json", "-")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sum(json.loads(done.stdout)["by_property"].values()), 60)


if __name__ == "__main__":
    unittest.main()
