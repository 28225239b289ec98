#!/usr/bin/env python3
"""Runs the commands of the documentation: lines that begin with `$`, indented, in docs/*.md.

    docs_commands.py FOLDER_OF_TUTTI

Each runs in a shell with that folder first on the PATH and must exit with 0 within two minutes.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = re.compile(r"^    \$ (.+)$", re.MULTILINE)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    environment = {**os.environ, "PATH": f"{sys.argv[1]}:{os.environ['PATH']}", "TUTTI_DEVICE": "host", "NO_COLOR": "1"}
    failed = count = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        for command in COMMAND.findall(page.read_text(encoding="utf-8")):
            count += 1
            result = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True,
                                    timeout=120, check=False)
            if result.returncode != 0:
                failed += 1
                print(f"{page.name}: $ {command}\nexit code {result.returncode}\n{result.stdout[-800:]}{result.stderr[-800:]}")
    print(f"docs: {count} commands, {failed} failed")
    sys.exit(1 if failed or not count else 0)


if __name__ == "__main__":
    main()
