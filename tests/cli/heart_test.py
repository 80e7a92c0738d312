"""Open-heart checks through the command, on files that torch.save wrote: what is read is what torch.load reads."""
import argparse
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments, **options):
    return subprocess.run([str(ROOT / "fractus-verify"), *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def bytes_read(*arguments):
    """What the program itself asked the kernel to read, by /proc, before it is reaped. Pages that a library maps are not
    counted, and the program maps no file of its own."""
    process = subprocess.Popen([ROOT / "build" / "release" / "bin" / "fractus-verify", *map(str, arguments)], stdout=subprocess.DEVNULL,
                               env={**os.environ, "FRACTUS_ROOT": str(ROOT)})
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    counted = pathlib.Path(f"/proc/{process.pid}/io").read_text()
    return process.wait(), int(counted.split("rchar: ")[1].split()[0])


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.folder = pathlib.Path(held.name)
        run("list")  # builds what is missing
        done = subprocess.run([ROOT / ".venv" / "bin" / "python", pathlib.Path(__file__).with_name("torch_checkpoints.py"), cls.folder],
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "cuda-stubs")})
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        cls.written = json.loads(done.stdout)

    def schema(self, name):
        done = run("checkpoint", self.folder / f"{name}.pt", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def gate(self, *arguments):
        done = run("gate", *arguments, "--json", "-")
        answer = json.loads(done.stdout) if done.stdout else None
        self.assertEqual(done.returncode, 0 if answer["admitted"] else 1, done.stderr)
        return answer

    def refused(self, words, *arguments):
        answer = self.gate(*arguments)
        self.assertEqual([words in one["fact"] for one in answer["refusals"]], [True], answer["refusals"])


class Checkpoint(Files):
    def test_agrees_with_torch(self):
        """Protects: names, shapes, dtypes and ties are those that torch.load(weights_only=True) has."""
        for name, expected in self.written["expected"].items():
            with self.subTest(name):
                schema = self.schema(name)
                self.assertEqual({one["name"]: [one["dtype"], one["shape"]] for one in schema["tensors"]}, expected["tensors"])
                self.assertEqual(schema["tied"], expected["tied"])
        self.assertEqual(self.written["expected"]["module"], self.written["expected"]["compiled"])
        self.assertEqual(self.written["expected"]["module"]["tied"], [["embedding.weight", "head.weight"]])

    def test_config(self):
        config = self.schema("module")["config"]
        self.assertEqual(config, {"d_model": 32, "n_layers": 2, "rate": 1e-3, "name": "tiny \u00e9", "flags": [True, None, {"deep": [1, 2]}],
                                  "negative": -2**40, "seed": {"$integer": "0x00ffffffffffffffff"}, "dtype": {"$name": "torch.float32"},
                                  "device": {"$torch.device": ["cpu"]}})

    def test_gate(self):
        """Protects: a compiled module's checkpoint replaces the plain one; another model's does not."""
        module = self.folder / "module.pt"
        self.assertTrue(self.gate("--checkpoint", module, "--checkpoint-new", self.folder / "compiled.pt", "--nan")["admitted"])
        answer = self.gate("--checkpoint", module, "--checkpoint-new", self.folder / "views.pt")
        self.assertGreaterEqual(len(answer["refusals"]), 3)
        schema = self.folder / "module.json"
        self.assertEqual(run("checkpoint", module, "--json", schema).returncode, 0)
        self.assertTrue(self.gate("--checkpoint", schema, "--checkpoint-new", self.folder / "compiled.pt")["admitted"])

    def test_numbers(self):
        """Protects: what is not finite to torch is not to the gate, in each dtype; and what is finite passes."""
        self.assertGreater(len(self.written["finite"]), 10)
        for name, finite in self.written["finite"].items():
            with self.subTest(name):
                self.assertFalse(finite, "the pattern is meant not to be finite")
                file = self.folder / f"{name}.pt"
                self.assertTrue(self.gate("--checkpoint", file, "--checkpoint-new", file)["admitted"])
                self.refused("\"w\" 1 NaN and 0 infinite, the first at (2, 3)" if name.startswith("nan") else
                             "\"w\" 0 NaN and 1 infinite, the first at (2, 3)", "--checkpoint", file, "--checkpoint-new", file, "--nan")
        file = self.folder / "nan.complex.pt"
        self.refused("the first at (1)", "--checkpoint", file, "--checkpoint-new", file, "--nan")
        for name in ("dtypes", "views"):
            file = self.folder / f"{name}.pt"
            self.assertTrue(self.gate("--checkpoint", file, "--checkpoint-new", file, "--nan")["admitted"], name)

    def test_other_formats(self):
        for file, words in ((self.folder / "legacy.pt", "a bare pickle"), (pathlib.Path(__file__), "does not begin as a zip archive"),
                            (self.folder, "no regular file"), (self.folder / "absent.pt", "cannot be opened")):
            done = run("checkpoint", file)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
            self.assertIn("->", done.stderr)

    def test_executes_nothing(self):
        """Protects: a pickle that runs a command in a reader that unpickles runs nothing here, and is refused by name."""
        canary, file = self.folder / "canary", self.folder / "hostile.pt"

        class Hostile:
            def __reduce__(self):
                return os.system, (f"touch '{canary}'",)

        for content, words in ((Hostile(), "posix.system"), (argparse.Namespace(a=1), "argparse.Namespace")):
            pickled = pickle.dumps({"model_state": {}, "config": content}, protocol=2)
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("x/data.pkl", pickled)
            done = run("checkpoint", file)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
        self.assertFalse(canary.exists())
        pickle.loads(pickle.dumps(Hostile()))  # the canary sings where it is unpickled
        self.assertTrue(canary.exists())

    def test_reads_no_data(self):
        """Protects: 4 GB cost their directory. The counter counts: 64 MB that are looked at show in it."""
        self.assertGreater((self.folder / "huge.pt").stat().st_size, 2**32)
        status, read = bytes_read("checkpoint", self.folder / "huge.pt")
        self.assertEqual(status, 0)
        self.assertLess(read, 2**20)
        self.assertEqual(self.schema("huge")["tensors"][0], {"name": "big", "dtype": "float32", "shape": [2**30 + 2**20]})
        file = self.folder / "64MB.pt"
        status, read = bytes_read("gate", "--checkpoint", file, "--checkpoint-new", file, "--nan")
        self.assertEqual(status, 0)
        self.assertGreater(read, 2**26)


class Others(Files):
    def test_manifest(self):
        (self.folder / "shard.bin").write_bytes(struct.pack("<i", 7) * 5121)
        gpu = {"start_token": 2048, "tokens_processed": 2048, "checkpoint": "module.pt", "shard": "shard.bin"}
        manifest = self.folder / "RESUME_MANIFEST.json"
        manifest.write_text(json.dumps({"step_tokens": 512, "gpus": {"0": gpu, "1": gpu}}))
        self.assertTrue(self.gate("--manifest", manifest, "--batch", 4, "--seq", 128)["admitted"])
        answer = self.gate("--manifest", manifest, "--batch", 3, "--seq", 128)
        self.assertIn("1920 below reads 128 tokens again, 2304 above skips 256", answer["refusals"][0]["fact"])

    def test_curve(self):
        log, ema = [], 4.0
        for step in range(1, 5001):
            tf = 4 + ((step * 7919) % 1009) / 1009 - 0.5
            ema = 0.98 * ema + 0.02 * tf
            log.append(f"step={step} tf={tf:.4f} ema_tf={ema:.4f} lb={14.03 + (step * 104729 % 997) / 1e5:.4f}")
        file = self.folder / "train.log"
        file.write_text("\n".join(log) + "\n")
        self.assertTrue(self.gate("--curve", file, "--swap-at", 4980)["admitted"])
        log[4985] = log[4985].replace("tf=", "tf=nan tf_was=", 1)
        file.write_text("\n".join(log) + "\n")
        self.refused("not finite in 1 lines, the first after the swap, step 4986", "--curve", file, "--swap-at", 4980)

    def test_usage(self):
        """Protects: half a question is bad usage, not a pass."""
        file = self.folder / "module.pt"
        for arguments in (["--checkpoint", file], ["--checkpoint-new", file], ["--nan"], ["--manifest", file], ["--batch", 4, "--seq", 8],
                          ["--manifest", file, "--batch", 0, "--seq", 8], ["--manifest", file, "--batch", -4, "--seq", 8],
                          ["--ladder", file], ["--curve", file], ["--swap-at", 4], ["--curve", file, "--curve-new", file, "--swap-at", 4],
                          ["--curve", file, "--swap-at", -4], []):
            with self.subTest(arguments):
                self.assertEqual(run("gate", *arguments).returncode, 64)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["-v"] + sys.argv[1:])
