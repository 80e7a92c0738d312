"""The environment of somebody who uses the package: a virtual environment of their own, with pip, torch and pytest."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"


def packages_of(venv):
    return next(venv.glob("lib/python3*/site-packages"))


def new_environment(folder):
    """The variables for it. Its packages are the checkout's own, and pip asks no registry."""
    subprocess.run([VENV / "bin" / "python", "-I", "-m", "venv", "--without-pip", folder], check=True)
    (packages_of(folder) / "of_the_checkout.pth").write_text(f"{packages_of(VENV)}\n")
    return {**plain(os.environ), "VIRTUAL_ENV": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "cuda-stubs"),  # for torch without the libraries of CUDA
            "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # "0": without isolation


def plain(variables):
    """Without what changes how Python and pytest behave, and where the command is looked for."""
    return {name: value for name, value in variables.items() if not name.startswith(("PYTEST_", "PYTHON", "FRACTUS_"))}
