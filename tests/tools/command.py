"""The tutti command, for tests that see it as a script does. Each is started as NAME_test.py TUTTI SOURCE_FOLDER VERSION."""

import os
import pathlib
import subprocess
import sys
import tempfile

TUTTI, SOURCE, VERSION = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
LIMIT = 300  # seconds: many times what the longest needs, and still an end


def run(*arguments, env=None, stdout=subprocess.PIPE, limit=LIMIT):
    """Runs the command with none of the caller's settings, in an empty home."""
    with tempfile.TemporaryDirectory() as home:
        clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("NCCL_", "TUTTI_"))}
        clean.update({"HOME": home}, **(env or {}))
        return subprocess.run([TUTTI, *arguments], env=clean, stdout=stdout, stderr=subprocess.PIPE,
                              text=True, timeout=limit, check=False)
