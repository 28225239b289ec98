#!/usr/bin/env python3
"""Checks the commands of the documentation: indented lines of README.md, CONTRIBUTING.md, python/README.md and docs/*.md.

    docs_commands.py FOLDER_OF_TUTTI
    docs_commands.py --python PYTHON [PYTHON_WITH_TORCH]

Those that begin with `$` run, in a shell with that folder first on the PATH, and must exit with 0 within two minutes; a line
that ends with a backslash goes on in the next. Of others, which build for minutes, need root or stand for a user's own program,
what they name is there: targets of make, presets, scripts and subcommands with their options. Those that begin with `cc` or
LD_PRELOAD are run by tests/package, which has what they need.

With --python, the blocks marked `python` run: each as a program of its own, on two ranks, by the first interpreter or, where
it imports torch, by the second, if there is one. PYTHONPATH has the package.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = re.compile(r"^    \$ ((?:.*\\\n)*.+)$", re.MULTILINE)
NAMING = re.compile(r"^(?:    |\| `)((?:make|cmake|ctest|python3?|scripts/\S+|tutti)(?: [^`\n]*|))(?:` \|.*)?$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "python/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(command, environment):
    """What is wrong with a command that is run."""
    try:
        result = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
                                check=False)
    except subprocess.TimeoutExpired:
        return ["not done within two minutes"]
    return [] if result.returncode == 0 else [f"exit code {result.returncode}\n{result.stdout[-800:]}{result.stderr[-800:]}"]


def named(line, environment):
    """What a line names that is not there."""
    words = line.split(" #")[0].split()
    wrong = []
    if words[0] == "make":
        known = re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        targets = [word for word in words[1:] if "=" not in word and re.fullmatch(r"[\w-]+", word) and not word.isdigit()]
        wrong += [f"no target {each}" for each in targets if each not in " ".join(known).split()]
    if "--preset" in words:
        presets = {each["name"] for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        wrong += [f"no preset {each}" for each in re.findall(r"--preset (\S+)", line) if each not in presets]
    if words[0] == "tutti" and len(words) > 1:
        told = subprocess.run(["tutti", words[1], "--help"], env=environment, capture_output=True, text=True, check=False)
        options = re.findall(r"(?<= )--[a-z-]+", line.split(" -- ")[0])
        wrong += [f"no option {each} of tutti {words[1]}" for each in options if each not in told.stdout]
    return wrong + [f"no {each}" for each in re.findall(r"(?<!\S)(?:scripts|examples|tests|bench)/[\w./-]+", line)
                    if not (ROOT / each).exists()]


def run_blocks(pythons):
    """How many blocks of Python ran, were left out, and failed."""
    ran = left_out = failed = 0
    if len(pythons) > 1:  # compiled ahead: not within the time of the block that imports it
        subprocess.run([pythons[1], "-m", "tutti.torch"], stdout=subprocess.DEVNULL, timeout=500, check=True)
    for page in pages():
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            needs_torch = re.search(r"\bimport .*\btorch\b", block) is not None
            if needs_torch and len(pythons) < 2:
                left_out += 1
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as script:
                script.write(block)
                script.flush()
                python = shlex.quote(pythons[1 if needs_torch else 0])
                complaints = run(f"{python} -m tutti run -n 2 {script.name}", {**os.environ, "TUTTI_DEVICE": "host"})
            ran += 1
            for complaint in complaints:
                failed += 1
                print(f"{page.relative_to(ROOT)}:\n{block}{complaint}")
    return ran, left_out, failed


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--python":
        ran, left_out, failed = run_blocks(sys.argv[2:])
        print(f"docs: {ran} blocks of Python run, {left_out} left out for want of torch, {failed} complaints")
        sys.exit(1 if failed or not ran else 0)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    environment = {**os.environ, "PATH": f"{sys.argv[1]}:{os.environ['PATH']}", "TUTTI_DEVICE": "host", "NO_COLOR": "1"}
    failed, counts = 0, []
    for pattern, check in ((COMMAND, run), (NAMING, named)):
        found = [(page, line) for page in pages() for line in pattern.findall(page.read_text(encoding="utf-8"))]
        counts.append(len(found))
        for page, line in found:
            for complaint in check(line, environment):
                failed += 1
                print(f"{page.relative_to(ROOT)}: {line}\n{complaint}")
    print(f"docs: {counts[0]} commands run, {counts[1]} looked at, {failed} complaints")
    sys.exit(1 if failed or not all(counts) else 0)


if __name__ == "__main__":
    main()
