"""Keys and signed verdicts by the command line, and other implementations of the same formats. Each test says what it protects.

It needs securesystemslib and cryptography, so it is run by .venv's Python."""
import base64
import hashlib
import json
import os
import pathlib
import py_compile
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib import dsse
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from cli_test import ROOT, run

HOSTILE = ROOT / "tests" / "outside" / "hostile.py"
QUICK = ("--kernel", "linear_attention", "--preset", "smoke", "--dtype", "float32", "--only", "choices")
ATTENTION = re.search(r"^def right\(.*?(?=^def )", HOSTILE.read_text(), re.S | re.M).group()  # a correct one


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = pathlib.Path(tempfile.mkdtemp())
        cls.key, cls.public = cls.keys / "k.pem", cls.keys / "k.pub.pem"
        made = run("key", "new", cls.key)
        assert made.returncode == 0, made.stderr
        cls.id = made.stdout.split()[0]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.keys)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def signed(self, candidate, *more, status=2, **options):
        done = run("--candidate", candidate, *QUICK, "--report", self.folder / "report", "--sign", self.key, *more, **options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def verified(self, envelope=None, key=None):
        envelope = envelope or self.folder / "report" / "envelope.json"
        done = run("attest", "verify", envelope, "--key", key or self.public, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def subjects(self, **options):
        return {s["name"]: s["digest"] for s in self.verified(**options)["subjects"]}

    def sign_by_hand(self, statement):
        """By an implementation that is not ours."""
        payload = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
        envelope = dsse.Envelope(payload, "application/vnd.in-toto+json", {})
        envelope.sign(CryptoSigner(load_pem_private_key(self.key.read_bytes(), None)))
        return self.write("by_hand.json", json.dumps(envelope.to_dict()))


class Keys(Folder):
    """Protects the private key: from other users, from being lost, and from being shown."""

    def test_new(self):
        self.assertEqual(self.key.stat().st_mode & 0o7777, 0o600)
        for file in (self.key, self.public):
            self.assertEqual(run("key", "id", file).stdout, self.id + "\n")
        der = load_pem_public_key(self.public.read_bytes())
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        self.assertEqual(self.id, hashlib.sha256(der.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest())
        before = self.key.read_bytes()
        again = run("key", "new", self.key)
        self.assertEqual(again.returncode, 70)
        self.assertIn("never written over", again.stderr)
        self.assertEqual(self.key.read_bytes(), before)

    def test_never_shown(self):
        secret = self.key.read_text().splitlines()[1]
        made = run("key", "new", self.folder / "a.pem")
        self.assertNotIn((self.folder / "a.pem").read_text().splitlines()[1], made.stdout + made.stderr)
        shown = run("key", "id", self.key)
        refused = run("attest", "verify", self.key, "--key", self.key)
        self.assertEqual(refused.returncode, 70)
        for done in (shown, refused, run("attest", "verify", self.key, "--key", self.public)):
            self.assertNotIn(secret, done.stdout + done.stderr)

    def test_refused_before_the_run(self):
        """A wrong key ends the command before a case is run, and nothing is written."""
        loose = self.folder / "loose.pem"
        shutil.copy(self.key, loose)
        loose.chmod(0o640)
        for key, words in ((loose, "chmod 600"), (self.public, "BEGIN PRIVATE KEY"), (self.folder / "none.pem", "No such file")):
            start = time.monotonic()
            done = run("--candidate", "chunked", *QUICK, "--sign", key, "--report", self.folder / "r")
            self.assertEqual(done.returncode, 70, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertNotIn("from case 1", done.stderr)
            self.assertFalse((self.folder / "r").exists())
        for option in ("--expires=30d", "--envelope=e", "--subject=README.md"):
            done = run("--candidate", "chunked", option)
            self.assertEqual(done.returncode, 64)
            self.assertIn("say --sign", done.stderr)
        for expires in ("0d", "-1d", "30", "d", "11000d", "1y", "99999999999999999999d"):
            done = run("--candidate", "chunked", "--sign", self.key, f"--expires={expires}")
            self.assertEqual(done.returncode, 64, expires)
            self.assertIn("--expires", done.stderr)


class Verdicts(Folder):
    """Protects whoever relies on a signature: what it says is what was run."""

    def test_complete_run(self):
        """A complete run signs as EQUIVALENT, and all that the gate reads is there."""
        done = run("--candidate", "chunked", "--preset", "smoke", "--report", self.folder, "--sign", self.key, "--envelope", self.folder / "e.json", "--expires", "12h")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        says = self.verified(self.folder / "e.json")
        self.assertEqual(says["keyid"], self.id)
        predicate = says["predicate"]
        self.assertEqual(predicate["verdict"], "EQUIVALENT")
        self.assertEqual(predicate["result"], json.loads((self.folder / "report.json").read_text()))
        worker = {"name": "fractus-worker", "algorithm": "sha256", "digest": digest(ROOT / "build" / "release" / "bin" / "fractus-worker")}
        self.assertEqual(says["subjects"], [worker])
        self.assertEqual((predicate["candidate_subjects"], predicate["reference_subjects"]), (["fractus-worker"], ["fractus-worker"]))
        result = predicate["result"]
        for member in ("kernel", "candidate", "settings", "contract_version", "plan_hash", "seed", "preset", "dtypes", "forward_only", "waived"):
            self.assertEqual(predicate[member], result[member])
        self.assertEqual(predicate["cases"], sum(p["cases"] for p in result["properties"]))
        self.assertEqual([p["worst_ratio"] for p in predicate["properties"]], [p["worst_ratio"] for p in result["properties"]])
        self.assertEqual(predicate["mutants"], {m: result["mutants"][m] for m in ("measured", "killed", "total", "survivors")})
        self.assertEqual(predicate["coverage"]["covered"], predicate["coverage"]["planned"])
        self.assertIn("torch", predicate["machine"])
        self.assertIsInstance(predicate["machine"]["cpu_features"], list)
        issued, expires = (time.strptime(predicate[m], "%Y-%m-%dT%H:%M:%SZ") for m in ("issued", "expires"))
        self.assertEqual(time.mktime(expires) - time.mktime(issued), 12 * 3600)

    def test_partial_and_wrong(self):
        self.signed("chunked")
        self.assertEqual(self.verified()["predicate"]["verdict"], "PARTIAL")
        wrong = run("--candidate", "wrong_no_cut", *QUICK, "--report", self.folder / "wrong", "--sign", self.key)
        self.assertEqual(wrong.returncode, 1, wrong.stderr)
        self.assertEqual(self.verified(self.folder / "wrong" / "envelope.json")["predicate"]["verdict"], "DIFFERENT")
        late = run("--candidate", "chunked", *QUICK, "--budget", "1ms", "--report", self.folder / "late", "--sign", self.key)
        self.assertEqual(late.returncode, 2, late.stderr)
        self.assertEqual(self.verified(self.folder / "late" / "envelope.json")["predicate"]["verdict"], "UNDECIDED")

    def test_refusals(self):
        """Another key, a changed payload, a thing that is no envelope: status 1, with the reason."""
        good = self.sign_by_hand({"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:fractus-verify:verdict:1",
                                  "subject": [{"name": "a", "digest": {"sha256": "0" * 64}}],
                                  "predicate": {"format": "fractus-verify verdict 1", "issued": "2020-01-01T00:00:00Z", "expires": "2020-02-01T00:00:00Z"}})
        done = run("attest", "verify", good, "--key", self.public)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("has expired", done.stdout)
        self.assertEqual(run("key", "new", self.folder / "other.pem").returncode, 0)
        changed = json.loads(good.read_text())
        changed["payload"] = base64.b64encode(base64.b64decode(changed["payload"]).replace(b"2020-02", b"2099-02")).decode()
        for envelope, key, words in ((good, self.folder / "other.pub.pem", "no signature of it is by a given key"),
                                     (self.write("changed.json", json.dumps(changed)), self.public, "no signature of it is by a given key"),
                                     (self.write("empty.json", ""), self.public, "no JSON"), (self.folder / "absent.json", self.public, "No such file"),
                                     (self.public, self.public, "no JSON")):
            done = run("attest", "verify", envelope, "--key", key, "--json", self.folder / "said.json")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(words, done.stderr)
            said = json.loads((self.folder / "said.json").read_text())
            self.assertFalse(said["verified"])
            self.assertIn(words, said["reason"])
        both = run("attest", "verify", good, "--key", self.folder / "other.pub.pem", "--key", self.public)
        self.assertEqual(both.returncode, 0, both.stderr)

    def test_killed(self):
        """Killed at any moment, the command leaves a report and an envelope of one run, or not both."""
        report = self.folder / "report"
        start = time.monotonic()
        self.signed("chunked")
        whole, chosen = time.monotonic() - start, random.Random(5)
        for _ in range(6):
            process = subprocess.Popen([ROOT / "fractus-verify", "--candidate", "chunked", *QUICK, "--report", report, "--sign", self.key],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(whole * chosen.uniform(0.7, 1.05))
            process.kill()
            process.wait()
            files = [report / name for name in ("report.json", "envelope.json")]
            if all(file.exists() for file in files):
                self.assertEqual(self.verified()["predicate"]["result"], json.loads(files[0].read_text()))


class Merge(Folder):
    """Protects a signature over shards: it stands for runs that the same key signed, of one plan and the same bytes."""

    def test_merge(self):
        mine = self.write("mine.py", "import torch\n" + ATTENTION)
        parts = {}
        for name, part in (("a", ("--only", "choices")), ("b", ("--skip", "choices,power,repeat,memory,exact,gradients,carry,rounding,identity"))):
            parts[name] = self.folder / name
            done = run("--candidate", f"{mine}:right", *QUICK[:-2], *part, "--report", parts[name], "--sign", self.key, "--expires", "2h" if name == "a" else "9h")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        envelopes = [parts["a"] / "envelope.json", parts["b"] / "envelope.json"]

        def merge(*files, status):
            done = run("report", "merge", *files, "--sign", self.key, "--envelope", self.folder / "whole.json")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done

        merge(*envelopes, status=2)
        whole, first = self.verified(self.folder / "whole.json"), self.verified(envelopes[0])
        self.assertEqual(whole["predicate"]["verdict"], "PARTIAL")
        self.assertEqual([p["name"] for p in whole["predicate"]["properties"]], ["contract", "choices"])
        self.assertEqual(whole["subjects"], first["subjects"])
        self.assertEqual(whole["predicate"]["expires"], first["predicate"]["expires"])
        self.assertEqual(whole["predicate"]["issued"], first["predicate"]["issued"])  # what was run gets no younger
        (self.folder / "whole.json").unlink()

        # A plain result, an envelope by another key, one that has expired, and one about other bytes.
        self.assertIn("no DSSE envelope", merge(envelopes[0], parts["b"] / "report.json", status=64).stderr)
        self.assertEqual(run("key", "new", self.folder / "other.pem").returncode, 0)
        statement = json.loads(base64.b64decode(json.loads(envelopes[1].read_text())["payload"]))
        foreign = dsse.Envelope(json.dumps(statement).encode(), "application/vnd.in-toto+json", {})
        foreign.sign(CryptoSigner(load_pem_private_key((self.folder / "other.pem").read_bytes(), None)))
        self.assertIn("no signature of it", merge(envelopes[0], self.write("foreign.json", json.dumps(foreign.to_dict())), status=64).stderr)
        statement["predicate"]["expires"] = "2020-01-01T00:00:00Z"
        self.assertIn("only what stands now", merge(envelopes[0], self.sign_by_hand(statement), status=64).stderr)
        statement["predicate"]["expires"] = first["predicate"]["expires"]
        merge(envelopes[0], self.sign_by_hand(statement), status=2)
        (self.folder / "whole.json").unlink()
        statement["subject"][0]["digest"]["sha256"] = "0" * 64
        self.assertIn("different bytes", merge(envelopes[0], self.sign_by_hand(statement), status=64).stderr)
        self.assertFalse((self.folder / "whole.json").exists())


class Subjects(Folder):
    """Protects the gate: the digests are those of the bytes that were run, and of all of them."""

    def test_modules(self):
        """A module that is imported beside the candidate's file is bound, at the start and in a call, by name and place."""
        mine = self.write("k/mine.py", "import torch\nfrom parts.core import attention\n"
                          "def entry(q, k, v, S0=None, z0=None):\n    import late\n    return late.through(attention, q, k, v, S0, z0)\n")
        core = self.write("k/parts/core.py", "import torch\n" + ATTENTION.replace("def right", "def attention"))
        package = self.write("k/parts/__init__.py", "")
        late = self.write("k/late.py", "def through(f, *arguments):\n    return f(*arguments)\n")
        self.signed(f"{mine}:entry")
        wanted = {"mine.py": digest(mine), "parts/core.py": digest(core), "parts/__init__.py": digest(package), "late.py": digest(late)}
        subjects = self.subjects()
        worker = subjects.pop("fractus-worker")
        self.assertEqual(subjects, wanted)
        predicate = self.verified()["predicate"]
        self.assertEqual(sorted(predicate["candidate_subjects"]), sorted(wanted))
        self.assertEqual(predicate["reference_subjects"], ["fractus-worker"])
        self.assertEqual(worker, digest(ROOT / "build" / "release" / "bin" / "fractus-worker"))

        # The folder in place of its files; with one of the files outside of it, nothing is signed.
        self.signed(f"{mine}:entry", "--subject", self.folder / "k")
        predicate = self.verified()["predicate"]
        self.assertEqual(predicate["candidate_subjects"], ["k"])
        self.assertEqual(self.subjects()["k"], self.documented_tree_digest(self.folder / "k"))
        self.assertTrue((self.folder / "report" / "envelope.json").exists())
        done = self.signed(f"{mine}:entry", "--subject", self.folder / "k" / "parts", status=70)
        self.assertIn("lies in none of the folders", done.stderr)
        self.assertFalse((self.folder / "report" / "envelope.json").exists())  # nor that of the run before
        self.assertTrue((self.folder / "report" / "report.json").exists())

    @staticmethod
    def documented_tree_digest(folder):
        """By the program in docs/signing.md."""
        text = (ROOT / "docs" / "signing.md").read_text()
        names = {}
        exec(re.search(r"^```python\n(import hashlib.*?)^```", text, re.S | re.M).group(1), names)
        return names["tree_sha256"](folder)

    def test_documented_tree_digest(self):
        """The definition that others go by gives ours."""
        self.write("t/b.py", "b")
        self.write("t/a-b/run", "a").chmod(0o755)
        self.write("t/a/run", "a")
        self.write("t/a.py", "a")
        (self.folder / "t" / "empty").mkdir()
        (self.folder / "t" / "c.py").symlink_to("b.py")
        (self.folder / "t" / "d").symlink_to("a")
        mine = self.write("t/mine.py", "import torch\n" + ATTENTION)
        self.signed(f"{mine}:right", "--subject", self.folder / "t")
        self.assertEqual(self.subjects()["t"], self.documented_tree_digest(self.folder / "t"))

    def test_stale_bytecode(self):
        """What is run is the source that is bound. A .pyc of other bytes with the source's time and size is not."""
        mine = self.write("mine.py", f"import torch\nfrom helper import SCALE\n{ATTENTION}\n"
                          "def entry(q, k, v, S0=None, z0=None):\n    y, S, z = right(q, k, v, S0, z0)\n    return y * SCALE, S, z\n")
        helper = self.write("helper.py", "SCALE = 2.0\n")
        py_compile.compile(str(helper))
        before = helper.stat()
        helper.write_text("SCALE = 1.0\n")
        os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        import helper as stale  # Python itself takes the wrong one
        self.assertEqual(stale.SCALE, 2.0)
        done = run("--candidate", f"{mine}:entry", *QUICK[:-1], "rounding", "--report", self.folder / "report", "--sign", self.key)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(self.subjects()["helper.py"], digest(helper))

    def test_changed_meanwhile(self):
        """A file that changes while it is judged, and a module from a zip file, leave nothing to sign."""
        mine = self.write("mine.py", f"import torch\n{ATTENTION}\ndef entry(q, k, v, S0=None, z0=None):\n"
                          f"    open({str(self.folder / 'mine.py')!r}, 'a').write('#')\n    return right(q, k, v, S0, z0)\n")
        done = self.signed(f"{mine}:entry", status=70)
        self.assertIn("other bytes now than when it was loaded", done.stderr)
        with zipfile.ZipFile(self.folder / "z.zip", "w") as archive:
            archive.writestr("zipped.py", "import torch\n" + ATTENTION)
        mine = self.write("zips.py", f"import sys\nsys.path.insert(0, {str(self.folder / 'z.zip')!r})\nfrom zipped import right\n")
        done = self.signed(f"{mine}:right", status=70)
        self.assertIn("zipimporter", done.stderr)
        self.assertFalse((self.folder / "report" / "envelope.json").exists())

    def test_reference(self):
        """The files of --reference are subjects of their own role."""
        mine = self.write("a/mine.py", "import torch\n" + ATTENTION)
        other = self.write("b/mine.py", "import torch\n\n" + ATTENTION)
        self.signed(f"{mine}:right", "--reference", f"{other}:right")
        predicate = self.verified()["predicate"]
        self.assertEqual((predicate["candidate_subjects"], predicate["reference_subjects"]), (["mine.py"], ["../b/mine.py", "fractus-worker"]))
        self.assertEqual(self.subjects()["../b/mine.py"], digest(other))


class Others(Folder):
    """Protects interoperability: implementations that are not ours read our envelopes, and we theirs."""

    def setUp(self):
        super().setUp()
        self.ours = self.sign_by_ours()

    def sign_by_ours(self):
        self.signed("chunked")
        return json.loads((self.folder / "report" / "envelope.json").read_text())

    def test_securesystemslib(self):
        read = lambda: dsse.Envelope.from_dict(json.loads(json.dumps(self.ours)))
        key = SSlibKey.from_crypto(load_pem_public_key(self.public.read_bytes()), keyid=self.id)
        self.assertEqual(list(read().verify([key], 1)), [self.id])
        changed = read()
        changed.payload += b" "
        with self.assertRaises(VerificationError):
            changed.verify([key], 1)
        self.assertEqual(self.verified(self.sign_by_hand(read().payload))["predicate"], self.verified()["predicate"])

    def test_openssl(self):
        payload, kind = base64.b64decode(self.ours["payload"]), self.ours["payloadType"].encode()
        message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
        signature = self.folder / "sig"
        signature.write_bytes(base64.b64decode(self.ours["signatures"][0]["sig"]))
        for text, status in ((message, 0), (message + b" ", 1)):
            (self.folder / "pae").write_bytes(text)
            done = subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", self.public, "-in", self.folder / "pae", "-sigfile", signature],
                                  capture_output=True)
            self.assertEqual(done.returncode, status, done.stderr)


if __name__ == "__main__":
    unittest.main()
