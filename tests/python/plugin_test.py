"""The pytest plugin. Each test says what it protects."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from environment import ROOT, plain

FORMS = pathlib.Path(__file__).with_name("forms.py")


class Plugin(unittest.TestCase):
    """Protects the reader of a failed pipeline: the witness is the message, and nothing else is."""

    def pytest(self, tests, *arguments, ini=""):
        """What pytest prints of these tests in a folder of their own, as somebody's project has them."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "kernels.py").write_text(FORMS.read_text())
            (folder / "test_kernels.py").write_text("import kernels\n" + tests)
            (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
            done = subprocess.run([sys.executable, "-m", "pytest", "-p", "fractus_verify.pytest_plugin", "-p", "no:cacheprovider", *arguments],
                                  cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                                  env={**plain(os.environ), "PYTHONPATH": str(ROOT / "python")})
            return done.returncode, done.stdout.replace(str(folder), "FOLDER") + done.stderr

    def test_right_and_wrong(self):
        status, printed = self.pytest(
            "def test_right(equivalent):\n    assert equivalent(kernels.right, kernel='linear_attention').mutants.killed\n"
            "def test_wrong(equivalent):\n    equivalent(kernels.forgets_z0, only=['contract'], dtype='float32')\n", "--fractus-preset=smoke")
        self.assertEqual(status, 1, printed)
        self.assertIn("1 failed, 1 passed", printed)
        section = printed[printed.index("test_wrong ___"):printed.index("short test summary")]
        lines = section.splitlines()[1:-1]
        self.assertRegex(lines[0], "^  contract breaks at contract float32 D 1 G 1 T 1 .* seed [0-9]+$")
        self.assertRegex(lines[1], r"^    z\(0, 0\) is .*, the definition gives .*; the error is .*, a correct kernel may reach ")
        self.assertRegex(lines[2], "^    .*/fractus-verify replay '.*/fixtures/found/.*json'$")
        self.assertRegex(lines[-1], "^DIFFERENT  linear_attention FOLDER/kernels.py:forgets_z0, ")
        for noise in ("Traceback", "def test_wrong", "pytest_plugin.py", "Error"):
            self.assertNotIn(noise, section)

    def test_every_verdict_but_one_fails(self):
        """UNDECIDED, FAILED and what has no verdict are no passes, and each says why."""
        status, printed = self.pytest(
            "import pytest\n"
            "@pytest.mark.parametrize('fn, options', [(kernels.right, {'only': ['contract']}), (kernels.raises, {'only': ['contract']}),\n"
            "    (kernels.make(), {}), (3, {}), (kernels.right, {'kernel': 'linear_atention'}), (kernels.right, {'sead': 1})])\n"
            "def test_it(equivalent, fn, options):\n    equivalent(fn, **options)\n", "--fractus-preset=smoke", "--tb=short")
        self.assertEqual(status, 1, printed)
        self.assertIn("6 failed", printed)
        for words in ("partial", "UNDECIDED  linear_attention", "no kernel today", "FAILED  linear_attention",
                      "no verdict: wanted a function that a .py file defines at its top level, or 'path/file.py:function', got kernels.make",
                      "got 3, a int", "did you mean linear_attention", "sead"):
            self.assertIn(words, printed)
        self.assertNotIn("Traceback", printed)

    def test_options(self):
        """What the test says holds, then the command line, then the ini file."""
        test = "def test_it(equivalent):\n    print(equivalent(kernels.right, only='contract'{}))\n"
        ini = "fractus_preset = smoke\nfractus_budget = 1ms"
        self.assertIn("budget", self.pytest(test.format(""), ini=ini)[1])
        self.assertIn("wanted a time such as 30s, 10m or 1h, got 'soon'", self.pytest(test.format(""), "--fractus-budget=soon", ini=ini)[1])
        self.assertIn("got 'later'", self.pytest(test.format(", budget='later'"), "--fractus-budget=soon", ini=ini)[1])


if __name__ == "__main__":
    unittest.main()
