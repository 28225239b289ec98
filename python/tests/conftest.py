"""Ranks as threads for logic, as processes for what processes do."""

import os
import signal
import subprocess
import sys
import threading

import pytest

os.environ.setdefault("TUTTI_DEVICE", "host")
import tutti  # noqa: E402

# A shell that starts the tests in the background has them, and the ranks they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def run_threads(size, body):
    """body(communicator) on `size` ranks, a thread each; returns what each returned, or raises the first exception."""
    id = tutti.unique_id()
    results, errors = [None] * size, []

    def rank_main(rank):
        try:
            with tutti.Communicator(size, rank, id) as communicator:
                results[rank] = body(communicator)
        except BaseException as error:  # told in the main thread
            errors.append(error)

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a rank hangs"
    if errors:
        raise errors[0]
    return results


@pytest.fixture(params=[1, 2, 3])
def size(request):
    return request.param


@pytest.fixture
def ranks():
    return run_threads


@pytest.fixture
def processes(tmp_path):
    """Starts `script` as `size` ranks through the launcher; returns the finished process."""

    def start(size, script, timeout=300, **environment):
        path = tmp_path / "script.py"
        path.write_text(script)
        return subprocess.run([sys.executable, "-m", "tutti", "run", "-n", str(size), str(path)], text=True,
                              capture_output=True, timeout=timeout, check=False,
                              env={**os.environ, **environment})

    return start
