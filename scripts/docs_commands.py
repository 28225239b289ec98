#!/usr/bin/env python3
"""Checks the commands of the documentation: README.md, CONTRIBUTING.md, SECURITY.md, python/README.md, src/README.md, docs/*.md.

    docs_commands.py FOLDER_OF_TUTTI
    docs_commands.py --python PYTHON [PYTHON_WITH_TORCH]

Indented lines that begin with `$` run, in a shell with that folder first on the PATH, and must exit with 0 within two minutes; a
line that ends with a backslash goes on in the next. The others, in which a user's own program, an installed package or another
host may stand, are run by tests/docs/lines_test.py; here it is seen that what they name is there, so that this much is known
where they cannot run: targets of make, presets, scripts and subcommands with their options.

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
SECONDS = 250  # of one command, many times what it needs
COMMAND = re.compile(r"^    \$ ((?:.*\\\n)*.+)$", re.MULTILINE)
# What a command begins with: a program that the pages speak of, or a path; before it, variables for it.
PROGRAM = (r"(?:make|cmake|ctest|cc|gcc|g\+\+|mpicc|python3?|pip|tutti|apt-get|dpkg|update-alternatives|export|ssh|srun|mpirun"
           r"|torchrun|for|kill|taskset|git|sudo|docker|kubectl|[\w.-]*/[\w./-]+)")
WORDS = rf"(?:[A-Z][A-Z0-9_]+=[^`\s]+ )*{PROGRAM}"
LINE = re.compile(rf"^    ({WORDS}(?: .*)?)$")
SPAN = re.compile(rf"`({WORDS} [^`]+)`")
NAME_ALONE = re.compile(r"tutti \w+|python -m tutti")  # spoken of
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages():
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "python/README.md", "src/README.md")
    return [*(ROOT / name for name in names), *sorted((ROOT / "docs").glob("*.md"))]


def lines():
    """Command lines without `$`, each with the pages that have it: indented ones, and spans of code of several words."""
    found = {}
    for page in pages():
        fenced = False
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith("    $ "):
                indented = LINE.match(line)
                told = [indented[1]] if indented else [each for each in SPAN.findall(line) if not NAME_ALONE.fullmatch(each)]
                for each in told:
                    found.setdefault(re.sub(r"\s+# .*", "", each), []).append(str(page.relative_to(ROOT)))
    return found


def run(command, environment):
    """What is wrong with a command that is run."""
    try:
        result = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS,
                                check=False)
    except subprocess.TimeoutExpired:
        return [f"not done within {SECONDS} s"]
    return [] if result.returncode == 0 else [f"exit code {result.returncode}\n{result.stdout[-800:]}{result.stderr[-800:]}"]


def named(line, environment):
    """What a line names that is not there."""
    words = line.split()
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
    failed = 0

    def complain(where, line, complaints):
        nonlocal failed
        for complaint in complaints:
            failed += 1
            print(f"{where}: {line}\n{complaint}")

    ran = [(page, line) for page in pages() for line in COMMAND.findall(page.read_text(encoding="utf-8"))]
    for page, line in ran:
        complain(page.relative_to(ROOT), line, run(line, environment))
    others = lines()
    for line, where in others.items():
        complain(where[0], line, named(line, environment))
    print(f"docs: {len(ran)} commands run, {len(others)} looked at, {failed} complaints")
    sys.exit(1 if failed or not ran or not others else 0)


if __name__ == "__main__":
    main()
