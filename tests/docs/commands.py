"""Runs every command of the ```sh blocks in README.md and docs/, in the checkout.

A command ends in 0, or in N where its line ends in `# exit N`. Commands in SKIPPED are not run; each has its reason."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {
    "./fractus-verify bench attention": "two and a half minutes of measurement",
    "./fractus-verify bench oracle": "a measurement, disturbed by tests beside it",
}


def commands():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
            for line in filter(None, map(str.strip, block.splitlines())):
                wanted = re.search(r"#\s*exit (\d+)", line)
                yield page.name, line.split("  #")[0].strip(), int(wanted.group(1)) if wanted else 0


def main():
    failures = ran = 0
    for page, command, wanted in commands():
        if command in SKIPPED:
            print(f"skipped {page}: {command} ({SKIPPED[command]})")
            continue
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        ran += 1
        if done.returncode != wanted:
            failures += 1
            print(f"{page}: {command}\n  wanted status {wanted}, got {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"{ran} commands, {failures} failed")
    return 1 if failures or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
