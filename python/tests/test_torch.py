"""Backend "tutti" of torch.distributed; see torch_cases.py for the calls."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch")
CASES = pathlib.Path(__file__).with_name("torch_cases.py")
NAMES = re.findall(r"^def (case_\w+)", CASES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Once, and not within the time of the first test."""
    result = subprocess.run([sys.executable, "-m", "tutti.torch"], text=True, capture_output=True, timeout=280, check=False)
    if "no C++ compiler" in result.stderr or "No such file" in result.stderr:
        pytest.skip("torch's or pybind11's headers, or a compiler, are not installed")
    assert result.returncode == 0, result.stderr


def test_another_compiler_makes_another_module(monkeypatch):
    from tutti.torch import _build
    monkeypatch.delenv("CXX", raising=False)
    plain = _build._folder()
    monkeypatch.setenv("CXX", "g++ -fsanitize=address")
    assert _build._folder() != plain
    monkeypatch.setenv("CXX", "")
    assert _build._folder() == plain


@pytest.fixture(scope="module", params=[1, 2, 4])
def outcome(request):
    """What every case came to, by name, run by as many ranks."""
    result = subprocess.run([sys.executable, "-m", "tutti", "run", "-n", str(request.param), str(CASES)], text=True,
                            capture_output=True, timeout=250, check=False)
    lines = re.findall(r"(PASS|FAIL) (case_\w+)(.*)", result.stdout)
    told = {name: verdict + rest for verdict, name, rest in lines}
    told["ended"] = result.stdout.count("END ") == request.param and result.returncode == 0
    told["output"] = result.stdout[-4000:] + result.stderr[-4000:]
    return told


@pytest.mark.parametrize("name", NAMES)
def test_gives_what_torch_says(outcome, name):
    assert outcome.get(name, "").startswith("PASS"), outcome.get(name) or "not run: " + outcome["output"]


def test_ends(outcome):
    assert outcome["ended"], outcome["output"]


@pytest.fixture
def processes(processes):
    """Importing torch takes many seconds on a busy machine."""
    return lambda size, script, **environment: processes(size, script, timeout=240, **environment)


FRAME = """
import datetime, os, signal, sys, threading, time
import torch, torch.distributed as dist
import tutti.torch
rank = int(os.environ["RANK"])
dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
tensor = torch.ones(1000)
dist.all_reduce(tensor)
started = time.monotonic()
"""


@pytest.fixture
def loose_processes(tmp_path):
    """Ranks that nobody ends when one of them dies; returns what they printed."""

    def start(size, script, **environment):
        path = tmp_path / "script.py"
        path.write_text(script)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        base = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
        ranks = [subprocess.Popen([sys.executable, str(path)], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env={**base, "RANK": str(rank)}) for rank in range(size)]
        try:
            return "".join(rank.communicate(timeout=240)[0] for rank in ranks)
        finally:
            for rank in ranks:
                rank.kill()

    return start


def test_a_dead_rank_is_named(loose_processes):
    output = loose_processes(3, FRAME + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(tensor)
except RuntimeError as error:
    print(f"rank {rank} after {time.monotonic() - started:.1f}: {error}", flush=True)
    time.sleep(1)
    os._exit(0)
""", TUTTI_TIMEOUT_MS="5000")
    for rank in (0, 2):
        assert re.search(rf"rank {rank} after [0-5]\.\d: .*all_reduce.*rank 1", output), output


def test_a_dead_sender_is_named(loose_processes):
    output = loose_processes(2, FRAME + """
if rank == 1:
    dist.send(tensor, 0)
    os.kill(os.getpid(), signal.SIGKILL)
dist.recv(tensor, 1)
try:
    dist.recv(tensor, 1)
except RuntimeError as error:
    print(f"after {time.monotonic() - started:.1f}: {error}", flush=True)
    os._exit(0)
""", TUTTI_TIMEOUT_MS="5000")
    assert re.search(r"after [0-5]\.\d: .*receives from rank 1", output), output


def test_ranks_that_call_different_sizes_are_told(loose_processes):
    output = loose_processes(2, FRAME + """
try:
    dist.all_reduce(torch.ones(10 + rank))
except RuntimeError as error:
    print(f"rank {rank} is told: {error}", flush=True)
os._exit(0)
""", TUTTI_TIMEOUT_MS="5000")
    for rank in (0, 1):
        assert f"rank {rank} is told: " in output, output
    assert len(re.findall("0  AllReduce +10 ", output)) == len(re.findall("1  AllReduce +11 ", output)) == 2, output


def test_an_exception_in_one_rank_ends_the_others(loose_processes):
    output = loose_processes(3, FRAME + """
if rank == 1:
    raise ZeroDivisionError
try:
    dist.all_reduce(tensor)
except RuntimeError as error:
    print(f"rank {rank} after {time.monotonic() - started:.1f}: {error}", flush=True)
os._exit(0)
""", TUTTI_TIMEOUT_MS="5000")
    assert "ZeroDivisionError" in output, output
    for rank in (0, 2):
        assert re.search(rf"rank {rank} after [0-9]\.\d: .*all_reduce.*rank 1", output), output


INTERRUPTED = """
if rank == 0:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        {call}
    except KeyboardInterrupt:
        print(f"interrupted after {{time.monotonic() - started:.1f}}", flush=True)
        os._exit(0)
try:  # the store ends with rank 0
    dist.distributed_c10d._get_default_store().wait(["nothing"], datetime.timedelta(seconds=60))
except Exception:
    pass
os._exit(0)
"""


@pytest.mark.parametrize("call", [
    "dist.all_reduce(tensor)", "dist.all_reduce(tensor, async_op=True).wait()", "dist.recv(tensor, 1)",
    "dist.new_group([0, 1])", "tutti.torch.monitored_barrier()"])
def test_control_c_ends_a_wait(processes, call):
    result = processes(2, FRAME + INTERRUPTED.format(call=call))
    assert re.search(r"interrupted after [01]\.\d", result.stdout), result.stdout + result.stderr


def test_the_interpreter_ends_in_mid_collective(processes):
    result = processes(2, FRAME + """
if rank == 0:
    work = dist.all_reduce(tensor, async_op=True)
    late = dist.irecv(torch.empty(3), 1)
    sys.exit(0)
time.sleep(3)
print("slept", flush=True)
""")
    assert result.returncode == 0 and "slept" in result.stdout, result.stdout + result.stderr


def test_threads_and_autograd_threads_do_not_need_the_gil_while_waiting(processes):
    result = processes(2, FRAME + """
if rank == 0:
    work = dist.all_reduce(tensor, async_op=True)
    threading.Thread(target=work.wait).start()
    counted = sum(1 for _ in range(200000))
    print("counted", counted, flush=True)
    dist.send(tensor, 1)
    work.wait()
else:
    dist.recv(tensor, 0)
    dist.all_reduce(tensor)
dist.destroy_process_group()
""")
    assert result.returncode == 0 and "counted 200000" in result.stdout, result.stdout + result.stderr


def test_a_fork_is_told_to_make_its_own(processes):
    result = processes(2, FRAME + """
child = os.fork()
if child == 0:
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        print(f"refused: {error}", flush=True)
    os._exit(0)
os.waitpid(child, 0)
dist.all_reduce(tensor)
dist.destroy_process_group()
""")
    assert result.returncode == 0 and "is a fork of it" in result.stdout, result.stdout + result.stderr


def test_ranks_may_be_spawned(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(f"""
import torch, torch.distributed as dist, torch.multiprocessing
import tutti.torch

def rank_main(rank):
    dist.init_process_group("tutti", init_method="file://{tmp_path}/store", rank=rank, world_size=2)
    tensor = torch.full((5,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 5, tensor
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank_main, nprocs=2)
    print("all ended")
""")
    result = subprocess.run([sys.executable, str(path)], text=True, capture_output=True, timeout=240, check=False)
    assert result.stdout == "all ended\n", result.stdout + result.stderr


def test_ranks_that_do_not_come_are_named(tmp_path):
    script = ("import datetime, torch.distributed as dist, tutti.torch\n"
              "store = dist.HashStore()\n"
              "tutti.torch.create(store, 0, 3, datetime.timedelta(seconds=0.5))\n")
    result = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=60, check=False)
    assert "ranks 1, 2 did not come" in result.stderr, result.stderr


def test_torchrun_and_a_backend_for_each_device(tmp_path):
    torch = pytest.importorskip("torch")
    name = "tutti" if torch.__version__.startswith("1.") else "cpu:tutti"
    if torch.cuda.device_count() >= 2 and name != "tutti":
        name += ",cuda:nccl"
    # What is not redirected, torch 1.13 forgets with Python 3.11.
    redirected = ["--tee=1", "--redirects=1", f"--log_dir={tmp_path}"] if torch.__version__.startswith("1.") else []
    result = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
                             *redirected, str(CASES), "case_data_parallel", name], text=True, capture_output=True, timeout=120,
                            check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert "PASS case_data_parallel" in result.stdout, result.stdout + result.stderr
