"""Runs every command of the ```sh blocks in README.md and docs/, in the checkout, in the order of the page.

`python` is that of a virtual environment such as a reader has. A command ends in 0, or in N where its line ends in `# exit N`. What would take long runs in a short form (SHORTER); what is
not run is said, with its reason (SKIPPED). Links between the pages must lead somewhere."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from environment import new_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHORTER = {
    "./ci/test": "test -x ci/test && bash -n ci/test",  # it runs this very test
    "--budget 10m": "--budget 2s",
    "--budget 8h": "--budget 2s",
    "bench power": "bench power tests/outside/power/linear_attention.py --preset smoke --dtype float32",
}
SKIPPED = {
    "./fractus-verify bench attention": "minutes of measurement",
    "./fractus-verify bench cross_entropy": "minutes of measurement",
    "./fractus-verify bench oracle": "a measurement, disturbed by tests beside it",
}
ABSENT = {"../shared/golden": "the recorded tensors are not beside this checkout"}


def commands(page):
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M):
        for line in filter(None, map(str.strip, block.splitlines())):
            command, _, comment = line.partition(" #")
            wanted = re.search(r"exit (\d+)", comment)
            yield command.strip(), int(wanted.group(1)) if wanted else 0


def why_not(command):
    if command in SKIPPED:
        return SKIPPED[command]
    return next((reason for path, reason in ABSENT.items() if path in command and not (ROOT / path).exists()), None)


def failure_of(command, wanted, environment):
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    try:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                              env=environment if command.startswith("python ") else None)
    except subprocess.TimeoutExpired:
        return "no end within 120 s"
    if done.returncode != wanted:
        return f"wanted status {wanted}, got {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return None


def broken_links(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target and not (page.parent / target).exists():
            yield f"{page.name}: the link to {target} leads nowhere"


def main(folder):
    environment = new_environment(pathlib.Path(folder) / "venv")
    failures, ran, done = [], 0, {}
    for page in PAGES:
        failures += broken_links(page)
        found = list(commands(page))
        if not found:
            failures.append(f"{page.name}: no command to try")
        for command, wanted in found:
            if reason := why_not(command):
                print(f"skipped  {page.name}: {command} ({reason})")
                continue
            if (command, wanted) not in done:  # a command that two pages show runs once
                start = time.monotonic()
                done[command, wanted] = failure_of(command, wanted, environment)
                ran += 1
                print(f"{time.monotonic() - start:6.1f} s {page.name}: {command}", flush=True)
            if done[command, wanted]:
                failures.append(f"{page.name}: {command}\n  {done[command, wanted]}")
    print("\n".join(failures))
    print(f"{ran} commands run, {len(failures)} failures")
    return 1 if failures or ran == 0 else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(folder))
