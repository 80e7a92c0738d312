"""The package by pip, from the checkout. Each test says what it protects."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from environment import ROOT, new_environment, packages_of

FORMS = pathlib.Path(__file__).with_name("forms.py")
TEST = """import kernels
def test_wrong(equivalent):
    equivalent(kernels.forgets_z0, only=["contract"], dtype="float32")
"""


class Install(unittest.TestCase):
    """Protects the first minute of somebody who wants it in their own environment, outside of the checkout."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.environment = new_environment(self.folder / "venv")

    def run_in(self, *arguments, environment=None):
        return subprocess.run(["python", *map(str, arguments)], cwd=self.folder, env=environment or self.environment, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=120)

    def install(self, *arguments):
        done = self.run_in("-m", "pip", "install", *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def launcher(self):
        return self.run_in("-c", "import fractus_verify.command as c; print(c.launcher())")

    def test_installed(self):
        before = self.run_git("status", "--porcelain", "--ignored")
        self.install(ROOT)
        self.assertEqual(self.run_git("status", "--porcelain", "--ignored"), before)  # it leaves nothing in the checkout
        installed = packages_of(self.folder / "venv") / "fractus_verify"
        self.assertTrue((installed / "py.typed").is_file())
        self.assertEqual(self.launcher().stdout.strip(), str(ROOT / "fractus-verify"))

        # The plugin needs no word of configuration.
        shutil.copy(FORMS, self.folder / "kernels.py")
        (self.folder / "test_kernels.py").write_text(TEST)
        done = self.run_in("-m", "pytest", "--fractus-preset=smoke")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 failed in", done.stdout)
        self.assertIn("z(0, 0) is ", done.stdout)

        # Where the checkout went, what to do is said.
        noted = next(packages_of(self.folder / "venv").glob("fractus_verify-*.dist-info")) / "direct_url.json"
        noted.write_text(json.dumps({"url": (self.folder / "gone").as_uri(), "dir_info": {}}))
        self.assertIn(f"pip installed it from '{self.folder}/gone', and the command is not there any more", self.launcher().stderr)
        noted.unlink()
        self.assertIn("pip did not install it from a checkout. Set FRACTUS_VERIFY to the checkout's folder", self.launcher().stderr)
        self.environment["FRACTUS_VERIFY"] = str(ROOT)
        self.assertEqual(self.launcher().stdout.strip(), str(ROOT / "fractus-verify"))

    def test_editable(self):
        self.install("-e", ROOT)
        done = self.run_in("-c", "import fractus_verify; print(fractus_verify.__file__)")
        self.assertEqual(done.stdout.strip(), str(ROOT / "python" / "fractus_verify" / "__init__.py"), done.stderr)
        self.assertEqual(self.launcher().stdout.strip(), str(ROOT / "fractus-verify"))

    def run_git(self, *arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout


if __name__ == "__main__":
    unittest.main()
